#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::optim {

// The factor by which fp16 training multiplies the loss, so that small gradients do not underflow.
// A static scale is constant. A dynamic scale falls at each overflow and grows after
// `scale_window` steps without one (SMP's and DeepSpeed's rule). A plain value; all ranks keep the
// same scale because they see the same gradient norm.
class LossScale {
 public:
  // The part that a checkpoint saves.
  struct State {
    double value = 1;
    int64_t good_steps = 0;      // since the last overflow or growth
    int64_t overflows_left = 1;  // until the scale falls
    int64_t skipped_steps = 0;   // since training began
  };

  LossScale() = default;  // always 1, for precisions other than fp16
  explicit LossScale(const LossScaleSpec& spec);

  double value() const { return state_.value; }
  bool guards() const { return guards_; }  // true: a step whose gradients overflow is skipped

  // Updates the scale after a step; `overflowed`: its gradients were not finite. Throws
  // TrainingError at an overflow when the scale is at its minimum.
  void step_done(bool overflowed);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaleSpec spec_;
  State state_;
  bool guards_ = false;
};

}  // namespace smp::optim
