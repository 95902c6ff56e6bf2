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
// A save goes on in this order: every rank writes its shards and its part-<rank>.json into the
// partial folder; when all have, one rank writes the manifest, renames the folder, moves `latest`
// or `best`, and removes the oldest. Each of these is durable before the next begins, so that a
// process or a machine that ends anywhere in between leaves `latest` on a whole checkpoint. What
// such a one had written is in no later checkpoint: each start of a run has partial folders of its
// own, and a folder with any other file in it is not made whole. Not thread-safe.
namespace smp::checkpoint {

class CheckpointStore {
 public:
  // `start` names this start of the run, the same on all its ranks and no other's; who only reads
  // needs none.
  explicit CheckpointStore(std::string folder, std::string start = "",
                           files::FileCalls& calls = files::system_file_calls());

  const std::string& folder() const { return folder_; }

  // Makes the folder and removes what an interrupted save has left. While no rank writes.
  void clean();

  // Where the ranks of this start write; made if it is not there. Every rank calls it.
  std::string begin(int64_t step);

  // All ranks 0 to ranks - 1 have written: makes the checkpoint whole, then `latest` and, where
  // `is_best`, `best`, then removes all but the `keep` of the highest steps, itself and what `best`
  // names. Throws CheckpointError when a part is missing, parts disagree, or a file is there that
  // none of them names.
  void commit(int64_t step, int64_t ranks, int64_t keep, const runinfo::TrainingRecord& training,
              bool is_best = false);

  // `best` names this one, or with an empty name is not there. While nothing is committed.
  void set_best(const std::string& name);

  // Names of whole checkpoints, by step.
  std::vector<std::string> list() const { return runinfo::whole_checkpoints(folder_); }
  // The one to go on from: checkpoint_to_go_on_from(). Throws ConfigError when there is none.
  std::string latest() const;
  // The newest one of a step. Throws ConfigError, with the steps that there are.
  std::string of_step(int64_t step) const;
  // The whole one before `name`, by step.
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
