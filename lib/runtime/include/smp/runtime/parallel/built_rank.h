#pragma once

#include <cstdint>
#include <string>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_ledger.h"

// One rank of a plan of any size, built without its peers. Its weights, gradients, optimizer state
// and buffers are allocated and filled as for training. So a rank's memory can be measured on a
// machine that cannot run the job.
namespace smp::parallel {

struct BuiltRank {
  int64_t rank = 0;
  int64_t parameters = 0;  // elements of this rank's layers, before sharding over z
  int64_t updated = 0;     // elements that its optimizer updates
  ledger::MemoryUse held;  // after building
  ledger::MemoryUse peak;  // during building
  int64_t host_bytes = 0;  // of host memory, after building
};

// Throws ConfigError if the plan has no such rank or the engine does not know its layers
// (what_engine_cannot_build), and OutOfMemory if the rank needs more than the plan's
// cluster.memory_per_process.
BuiltRank build_rank(const Plan& plan, int64_t rank);

// A table for people: each category beside the plan's prediction at its peak.
std::string describe(const BuiltRank& built, const Plan& plan);

}  // namespace smp::parallel
