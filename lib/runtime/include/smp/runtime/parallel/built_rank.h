#pragma once

#include <cstdint>
#include <string>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_ledger.h"

// One rank of a plan of any size, built alone: its share of the weights, its gradients, optimizer
// state and buffers are allocated and filled as for training, with nobody at the other end of its
// groups. So a plan's memory can be looked at on a machine that could not hold the job.
namespace smp::parallel {

struct BuiltRank {
  int64_t rank = 0;
  int64_t parameters = 0;  // elements of this rank's layers, before sharding over z
  int64_t updated = 0;     // elements that its optimizer updates
  ledger::MemoryUse held;  // once it is built
  ledger::MemoryUse peak;  // while it was built
  int64_t host_bytes = 0;  // of the host's memory, once it is built
};

// Throws ConfigError for a plan that has no such rank or whose layers the engine does not know
// (what_engine_cannot_build), OutOfMemory when the share does not fit in the plan's
// cluster.memory_per_process.
BuiltRank build_rank(const Plan& plan, int64_t rank);

// For people: each category beside what the plan predicts at its peak.
std::string describe(const BuiltRank& built, const Plan& plan);

}  // namespace smp::parallel
