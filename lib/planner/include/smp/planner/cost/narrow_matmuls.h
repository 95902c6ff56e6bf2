#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Of an element of NVFP4: 4 bits, and an 8-bit scale for 16 of them.
constexpr double kNvfp4Bytes = 0.5 + 1.0 / 16;

// Bytes of an element as the matmuls of such a precision read it.
constexpr double narrow_bytes(Precision precision) {
  return precision == Precision::kNvfp4 ? kNvfp4Bytes : 1;
}

// Whether each step casts the weights to fp8 or NVFP4, a share of it in each microbatch's time.
inline bool casts_weights(const JobSpec& job, const choice::LayoutChoice& choice) {
  return is_narrow(choice.precision) && !job.training.fp8_parameters;
}

}  // namespace smp::cost
