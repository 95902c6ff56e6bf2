#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "smp/comm/communicator.h"

namespace smp::jobs {

struct ThreadGroupOptions {
  std::chrono::milliseconds timeout{60000};  // for each call
  int threads = 0;          // of each rank in long calls; 0: one, and more after lend_cpus()
  int cpus = 0;             // that the ranks assume to have; 0: the real number
  int64_t cache_bytes = 0;  // of the last-level caches that they assume; 0: real
};

// Runs `program` once per rank, each in a thread of its own, with the communicator of all `size`
// ranks. The ranks use the shared-memory protocol on an anonymous mapping. For tests. If a rank
// throws, the calls of the others end; the first exception is thrown here once all ranks have
// ended.
void run_ranks(int size, const std::function<void(comm::Communicator&)>& program,
               const ThreadGroupOptions& options = {});

}  // namespace smp::jobs
