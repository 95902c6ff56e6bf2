#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/plan.h"
#include "smp/planner/layout_choice.h"
#include "smp/planner/strategy.h"

namespace smp {

// A job whose precision, initialisation and, for the best practices, checkpointing are decided, and
// why.
struct SettledJob {
  JobSpec job;
  std::vector<std::string> reasons;
  int64_t parameters = 0;
  bool balances_stages = false;  // where the job says nothing of its partition
};

// Mixed precision where the accelerator has it (bf16, else fp16), delayed initialisation above 60 B
// parameters. best-practice: checkpointing for transformers of real size as well; the fastest plan
// is searched over it.
SettledJob settle(const JobSpec& job, Strategy strategy);

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

// The layout of a plan: resolve(plan.job, *layout_choice_of(plan)) is the same plan, and the choice
// that a plan was resolved from comes back. Nothing for a plan that no LayoutChoice says: a
// partition whose middle stages differ by more than one layer, or are not the longer ones first; a
// placement other than cluster and spread.
std::optional<LayoutChoice> layout_choice_of(const Plan& plan);

// The same of every plan, for what depends on the layout's other numbers: a partition that no
// choice says is taken as even, another placement as cluster.
LayoutChoice nearest_choice_of(const Plan& plan);

Recompute recompute_of(const Plan& plan);

}  // namespace smp
