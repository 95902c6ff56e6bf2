#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "segment/shared_job.h"
#include "smp/comm/waiting/creator_process.h"

namespace smp::segment {

// A rank's part of the job's symmetric region, which every rank maps. This rank alone allocates
// blocks from it. A block is whole pages, which exist from its allocation until this process frees
// it; a forked child frees nothing. Blocks keep the arena and the job's mapping alive. Safe from
// any thread.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<SharedJob> job, int rank_here);  // its place among the ranks of this host

  // The memory is zeroed; null for 0 bytes. Throws std::bad_alloc when the part is full,
  // std::system_error without memory.
  std::shared_ptr<std::byte[]> allocate(int64_t bytes);

 private:
  void free(std::byte* begin, size_t bytes);

  const waiting::CreatorProcess creator_;
  const std::shared_ptr<SharedJob> job_;
  std::mutex mutex_;
  std::map<std::byte*, size_t> gaps_;  // begin -> bytes; never two side by side
};

}  // namespace smp::segment
