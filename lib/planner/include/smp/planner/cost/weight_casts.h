#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Whether each step casts the weights to fp8, a share of it in each microbatch's time.
inline bool casts_weights(const JobSpec& job, const choice::LayoutChoice& choice) {
  return choice.precision == Precision::kFp8 && !job.training.fp8_parameters;
}

}  // namespace smp::cost
