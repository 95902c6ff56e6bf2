#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch.h"
#include "smp/plan/plan.h"
#include "smp/planner/layout_choice.h"

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

// The same of a whole layout: every key that LayoutChoice has is the choice's, everything else the
// job's; a schedule's own count of microbatches in flight is written as all of the step's. Throws
// ConfigError when the choice does not fill the cluster.
Plan resolve(const JobSpec& job, const LayoutChoice& choice);

// The layout of a plan: resolve(plan.job, *layout_choice_of(plan)) is the same plan, and the choice
// that a plan was resolved from comes back. Nothing for a plan that no LayoutChoice says: a
// partition whose middle stages differ by more than one layer, or are not the longer ones first; a
// placement other than cluster and spread.
std::optional<LayoutChoice> layout_choice_of(const Plan& plan);

}  // namespace smp
