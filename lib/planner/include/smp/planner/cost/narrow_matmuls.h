#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Of an element of NVFP4: 4 bits, and an 8-bit scale for 16 of them.
constexpr double kNvfp4Bytes = 0.5 + 1.0 / 16;

// Bytes of an element as the matmuls of such a precision read it, with its share of a scale.
constexpr double narrow_bytes(const JobSpec& job, Precision precision) {
  if (precision == Precision::kNvfp4) return kNvfp4Bytes;
  switch (job.training.fp8_recipe) {
    case Fp8Recipe::kDelayed:
    case Fp8Recipe::kCurrent: return 1;
    case Fp8Recipe::kBlockwise: return 1 + 4.0 / 128;  // fp32
    case Fp8Recipe::kMxfp8: return 1 + 1.0 / 32;
  }
  return 1;
}

// Bytes that casting an element moves: it is read in 16 bits and written for either direction;
// before that a tensor's own scale, of current scaling and of NVFP4, needs its largest element.
constexpr double cast_bytes(const JobSpec& job, Precision precision) {
  const bool looks_first =
      precision == Precision::kNvfp4 || job.training.fp8_recipe == Fp8Recipe::kCurrent;
  return (looks_first ? 4 : 2) + 2 * narrow_bytes(job, precision);
}

// Whether each step casts the weights to fp8 or NVFP4, a share of it in each microbatch's time.
inline bool casts_weights(const JobSpec& job, const choice::LayoutChoice& choice) {
  return is_narrow(choice.precision) && !job.training.fp8_parameters;
}

}  // namespace smp::cost
