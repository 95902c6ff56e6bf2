#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/runtime/atomic_file.h"
#include "smp/runtime/checkpoint_manifest.h"

// The folder of a run's checkpoints:
//
//   step-00000100/             whole: it has a manifest.json, which nothing but a rename made
//     manifest.json
//     shard-00001-model-00001-of-00001.safetensors ...
//   step-00000200.partial/     being written, or being removed
//   latest                     the name of the one to go on from
//
// A save goes on in this order: every rank writes its shards and its part-<rank>.json into the
// partial folder; when all have, one rank writes the manifest, renames the folder, moves `latest`
// and removes the oldest. Each of these is durable before the next begins, so that a process or a
// machine that ends anywhere in between leaves `latest` on a whole checkpoint. Not thread-safe.
namespace smp {

class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder, FileCalls& calls = system_file_calls());

  const std::string& folder() const { return folder_; }

  // Makes the folder and removes what an interrupted save has left. While no rank writes.
  void clean();

  // Where the ranks write; made if it is not there. Every rank calls it.
  std::string begin(int64_t step);

  // All ranks 0 to ranks - 1 have written: makes the checkpoint whole, then `latest`, then removes
  // all but the `keep` newest. Throws CheckpointError when a part is missing or parts disagree.
  void commit(int64_t step, int64_t ranks, int64_t keep);

  // Names of whole checkpoints, oldest first.
  std::vector<std::string> list() const;
  // The one that `latest` names. Throws CheckpointError when there is none.
  std::string latest() const;
  // The newest one of a step. Throws CheckpointError, with the steps that there are.
  std::string of_step(int64_t step) const;
  // The newest whole one that is older than `name`.
  std::optional<std::string> before(const std::string& name) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void remove(const std::string& name);

  std::string folder_;
  FileCalls& calls_;
};

// "step-00000100" or "step-00000100-2": 100; nothing for other names.
std::optional<int64_t> step_of_checkpoint(const std::string& name);

}  // namespace smp
