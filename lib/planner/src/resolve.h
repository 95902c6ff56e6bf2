#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch.h"
#include "smp/plan/plan.h"

namespace smp {

// What the search decides; everything else is settled before it.
struct Choice {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  Sharding sharding = Sharding::kNone;
  int64_t shard = 1;  // z
  BatchShape batch;
  bool offload = false;
};

// A job whose precision, checkpointing, pipeline kind and initialisation are decided, and why.
struct SettledJob {
  JobSpec job;
  std::vector<std::string> reasons;
  int64_t parameters = 0;
};

// In the order of the SMP best practices: mixed precision where the accelerator has it (bf16, else
// fp16), checkpointing for transformers of real size, delayed initialisation above 60 B parameters.
SettledJob settle(const JobSpec& job);

// Transformers from this size on are checkpointed: below it activations rarely decide anything.
inline constexpr int64_t kCheckpointedFromParameters = 1'000'000'000;
// SMP's advice for delayed parameter initialisation.
inline constexpr int64_t kDelayedInitAboveParameters = 60'000'000'000;

// The plan of a choice, predictions and reasons left empty.
Plan resolve(const SettledJob& settled, const Choice& choice);

}  // namespace smp
