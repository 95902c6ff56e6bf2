#pragma once

#include <chrono>
#include <functional>

#include "smp/comm/communicator.h"

namespace smp {

struct ThreadGroupOptions {
  std::chrono::milliseconds timeout{60000};  // of every collective
  int threads = 0;  // that make each rank's long calls; 0 = one, until it lends its CPUs
};

// Runs `program` once per rank, each in a thread of its own with the communicator of all `size`
// ranks: the shared-memory protocol on an anonymous mapping. For tests. When a rank throws, the
// calls of the others end; the exception that came first is thrown here once all have ended.
void run_ranks(int size, const std::function<void(Communicator&)>& program,
               const ThreadGroupOptions& options = {});

}  // namespace smp
