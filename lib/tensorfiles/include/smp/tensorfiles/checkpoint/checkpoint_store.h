#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/files/atomic_file.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"

// The folder of a run's checkpoints:
//
//   step-00000100/             whole: it has a manifest.json, which nothing but a rename made
//     manifest.json
//     shard-00001-model-00001-of-00001.safetensors ...
//   step-00000200.<start>.partial/    being written by that start of the run, or being removed
//   latest                     the name of the one to go on from
//   best                       ... of the one with the lowest evaluation loss, if it is kept
//
// The order of a save: every rank writes its shards and its part-<rank>.json into the partial
// folder. When all have, one rank writes the manifest, renames the folder, moves `latest` or
// `best`, and removes the oldest checkpoints. Each action is durable before the next begins. So a
// process or a machine that ends in between leaves `latest` on a whole checkpoint. Files of an
// interrupted save never enter a later checkpoint: each start of a run has its own partial folders,
// and a folder with any other file in it is not made whole. Not thread-safe.
namespace smp::checkpoint {

class CheckpointStore {
 public:
  // `start` names this start of the run: the same on all its ranks, and unique. A reader needs
  // none.
  explicit CheckpointStore(std::string folder, std::string start = "",
                           files::FileCalls& calls = files::system_file_calls());

  const std::string& folder() const { return folder_; }

  // Makes the folder and removes the rest of an interrupted save. No rank may be writing.
  void clean();

  // The folder that the ranks of this start write to; it is made if necessary. Every rank calls it.
  std::string begin(int64_t step);

  // Called when all ranks 0 to ranks - 1 have written. Makes the checkpoint whole and moves
  // `latest` and, if `is_best`, `best`. Then removes all checkpoints except the `keep` of the
  // highest steps, itself and the one that `best` names. Throws CheckpointError if a part is
  // missing, parts disagree, or a file is present that none of them names.
  void commit(int64_t step, int64_t ranks, int64_t keep, const runinfo::TrainingRecord& training,
              bool is_best = false);

  // Lets `best` name this checkpoint; an empty name removes `best`. No commit may be running.
  void set_best(const std::string& name);

  // Names of whole checkpoints, by step.
  std::vector<std::string> list() const { return runinfo::whole_checkpoints(folder_); }
  // The checkpoint to resume from: checkpoint_to_go_on_from(). Throws ConfigError if there is none.
  std::string latest() const;
  // The newest checkpoint of a step. If there is none, throws ConfigError with the steps that
  // exist.
  std::string of_step(int64_t step) const;
  // The whole checkpoint before `name`, by step.
  std::optional<std::string> before(const std::string& name) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  std::string partial_of(int64_t step) const;
  void remove(const std::string& name);

  std::string folder_;
  std::string start_;
  files::FileCalls& calls_;
};

}  // namespace smp::checkpoint
