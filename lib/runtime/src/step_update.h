#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "smp/plan/plan.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// The loss or the gradient norm is no number; nothing was updated. All ranks throw it alike.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What ends a step once all gradients are reduced: the ranks agree on norm and loss, decide alike,
// and each updates what it owns. Used by the engine's thread; plan and model must outlive it.
class StepUpdate {
 public:
  StepUpdate(const Plan& plan, ParallelModel& model);

  // Collective over the world. `loss`: what the microbatches of this rank summed, without the loss
  // scale, which gradients still have. Throws NotFinite, and what LossScale::step_done throws.
  StepResult run(int64_t step, double learning_rate, double loss);

 private:
  double clipping(double norm) const;

  const Plan& plan_;
  ParallelModel& model_;
  std::vector<double> sums_;  // squared gradient norms by layer, then the loss
};

}  // namespace smp
