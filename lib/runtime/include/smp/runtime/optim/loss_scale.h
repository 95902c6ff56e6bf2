#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::optim {

// What fp16 multiplies the loss with, so that small gradients do not vanish: constant, or falling
// at overflows and growing after `scale_window` steps without one (SMP's and DeepSpeed's rule). A
// plain value; the ranks keep equal ones because they see the same norm.
class LossScale {
 public:
  // What a checkpoint holds of it.
  struct State {
    double value = 1;
    int64_t good_steps = 0;      // since the last overflow or growth
    int64_t overflows_left = 1;  // until it falls
    int64_t skipped_steps = 0;   // of the whole training
  };

  LossScale() = default;  // 1, and stays: for what needs no scale
  explicit LossScale(const LossScaleSpec& spec);

  double value() const { return state_.value; }
  bool guards() const { return guards_; }  // an overflow is to be expected and skips the step

  // A step's gradients were finite, or not. Throws TrainingError at an overflow when the scale is
  // as low as it may be.
  void step_done(bool overflowed);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaleSpec spec_;
  State state_;
  bool guards_ = false;
};

}  // namespace smp::optim
