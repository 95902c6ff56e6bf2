#include "smp/runtime/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "smp/plan/base/check.h"

namespace smp::optim {
namespace {

// The fraction of [first, last] that is done at `step`: 0 up to first, 1 from last on.
double done(int64_t first, int64_t last, int64_t step) {
  if (step <= first) return 0;
  if (step >= last) return 1;
  return static_cast<double>(step - first) / static_cast<double>(last - first);
}

}  // namespace

double learning_rate_at(const OptimizerSpec& spec, int64_t steps, int64_t step) {
  if (step < spec.warmup_steps) {
    return spec.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(spec.warmup_steps);
  }
  const double high = spec.learning_rate;
  const double low = spec.min_learning_rate;
  const int64_t last = steps - 1;
  switch (spec.schedule) {
    case LearningRateSchedule::kConstant: return high;
    case LearningRateSchedule::kLinear:
      return high + (low - high) * done(spec.warmup_steps, last, step);
    case LearningRateSchedule::kCosine:
      return low + 0.5 * (1.0 + std::cos(std::numbers::pi * done(spec.warmup_steps, last, step))) *
                       (high - low);
    case LearningRateSchedule::kWsd: {
      const int64_t first = std::max(spec.warmup_steps, last - spec.decay_steps);
      return high + (low - high) * done(first, last, step);
    }
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

}  // namespace smp::optim
