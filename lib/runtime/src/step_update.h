#pragma once

#include <cstdint>

#include "smp/plan/plan.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// What ends a step once all gradients are reduced: the ranks agree on norm and loss, decide alike,
// and each updates what it owns. Used by the engine's thread; plan and model must outlive it.
class StepUpdate {
 public:
  StepUpdate(const Plan& plan, ParallelModel& model) : plan_(plan), model_(model) {}

  // Collective over the world. `loss`: what the microbatches of this rank summed. Throws
  // TrainingError, on all ranks alike.
  StepResult run(int64_t step, double learning_rate, double loss);

 private:
  const Plan& plan_;
  ParallelModel& model_;
};

}  // namespace smp
