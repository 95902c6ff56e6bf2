#include "smp/runtime/optim/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/runtime/optim/training_error.h"

namespace smp::optim {

LossScale::LossScale(const LossScaleSpec& spec) : spec_(spec), guards_(true) {
  state_.value = spec.init_scale;
  state_.overflows_left = spec.delayed_shift;
}

// DynamicLossScaler.update_scale of DeepSpeed (runtime/fp16/loss_scaler.py).
void LossScale::step_done(bool overflowed) {
  if (!guards_) return;
  if (overflowed) ++state_.skipped_steps;
  if (!spec_.dynamic) return;
  if (!overflowed) {
    if (++state_.good_steps % spec_.scale_window != 0) return;
    state_.overflows_left = spec_.delayed_shift;
    state_.value *= spec_.scale_factor;
    return;
  }
  state_.good_steps = 0;
  if (state_.overflows_left > 1) {
    --state_.overflows_left;
    return;
  }
  if (state_.value <= spec_.min_scale && spec_.raise_error_at_min_scale) {
    throw TrainingError(
        fmt::format("gradients overflow fp16 at the lowest loss scale, "
                    "training.loss_scale.min_scale ({}), after {} skipped steps: lower "
                    "training.optimizer.learning_rate, or set training.precision: bf16",
                    spec_.min_scale, state_.skipped_steps));
  }
  state_.value = std::max(state_.value / spec_.scale_factor, spec_.min_scale);
}

}  // namespace smp::optim
