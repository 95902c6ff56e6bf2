#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/choice/strategy.h"

namespace smp::choice {

// A job with defaults for the keys that are decided before the search: precision, initialisation,
// the batch limit on CPUs and, for the best practices, checkpointing. `reasons` says why.
struct JobWithDefaults {
  JobSpec job;
  std::vector<std::string> reasons;
  int64_t parameters = 0;
  bool balances_stages = false;  // where the job says nothing of its partition
};

// Mixed precision where the accelerator has it (bf16, else fp16), delayed initialisation above 60 B
// parameters. best-practice: checkpointing for transformers of real size as well; the fastest plan
// is searched over it.
JobWithDefaults with_defaults(const JobSpec& job, Strategy strategy);

// Transformers from this size on are checkpointed: below it activations rarely decide anything.
inline constexpr int64_t kCheckpointedFromParameters = 1'000'000'000;
// SMP's advice for delayed parameter initialisation.
inline constexpr int64_t kDelayedInitAboveParameters = 60'000'000'000;
// Our engine's ranks draw what they hold, however small the model is: it trains on CPUs, and on
// accelerators what has steps.
inline bool engine_draws(const JobSpec& job) {
  return job.cluster.device == DeviceKind::kCpu || job.training.steps > 0;
}

// The plan of a whole layout, predictions and reasons left empty: every key that LayoutChoice has
// is the choice's, everything else the job's; a schedule's own count of microbatches in flight is
// written as all of the step's. Throws ConfigError when the choice does not fill the cluster.
Plan resolve(const JobSpec& job, const LayoutChoice& choice);

// The layout of a plan, the inverse of resolve(): resolve(plan.job, choice_of(plan)) is the same
// plan, and the choice that a plan was resolved from comes back. A plan without a partition has
// even stages. Throws ConfigError for a placement strategy that does not exist.
LayoutChoice choice_of(const Plan& plan);

Recompute recompute_of(const Plan& plan);

}  // namespace smp::choice
