#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "segment/shared_job.h"
#include "smp/comm/waiting/creator_process.h"

namespace smp::segment {

// A rank's part of the job's symmetric region, which every rank maps. Only this rank allocates
// blocks from its part. A block is whole pages, which exist until this process frees the block; a
// forked child frees nothing. Blocks keep the arena and the job's mapping alive. Safe from any
// thread.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<SharedJob> job, int rank_here);  // its place among the ranks of this host

  // Returns zeroed memory; null for 0 bytes. Throws std::bad_alloc if the part is full, and
  // std::system_error if the host has no memory.
  std::shared_ptr<std::byte[]> allocate(int64_t bytes);

 private:
  void free(std::byte* begin, size_t bytes);

  const waiting::CreatorProcess creator_;
  const std::shared_ptr<SharedJob> job_;
  std::mutex mutex_;
  std::map<std::byte*, size_t> gaps_;  // begin -> bytes; adjacent gaps are merged
};

}  // namespace smp::segment
