#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "smp/plan/plan.h"
#include "smp/plan/schedule_of_plan.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// The loss or the gradient norm is no number; nothing was updated. All ranks throw it alike.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No target of the global batch counts in the loss; nothing was updated. All ranks throw it alike.
class NothingCounts : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What ends a step: the ranks agree on norm and loss, decide alike, and each updates what it owns,
// bucket by bucket. Where nothing has to be known of all gradients first (why_updates_wait()), a
// bucket is updated before the ranks agree. Used by the engine's thread; plan and model must
// outlive it.
class StepUpdate {
 public:
  StepUpdate(const Plan& plan, ParallelModel& model);

  void begin(int64_t step, double learning_rate);

  // This rank's gradients of a bucket are summed over the ranks. Need not be told: it starts the
  // bucket's norms now, while others are still under way, and agree() starts those that are left.
  void reduced(int64_t bucket);

  // Of a reduced bucket. A step that is skipped updates nothing, nor does a rank a bucket of which
  // it has summed squares that are not finite: such a step ends in agree().
  void update(int64_t bucket);

  // Collective over the world. `loss`: what the microbatches of this rank summed, without the loss
  // scale, which gradients still have; `counted`: how many of their targets count in it. Throws
  // NotFinite, NothingCounts, and what LossScale::step_done throws.
  StepResult agree(double loss, int64_t counted);

 private:
  double clipping(double norm) const;
  double mean_correction(double counted) const;

  const Plan& plan_;
  ParallelModel& model_;
  const bool early_;             // updates come before agree()
  const bool counts_vary_;       // of the targets, so that their number is summed too
  std::vector<double> sums_;     // squared gradient norms by layer, the loss, that number
  std::vector<bool> has_norms_;  // by bucket: those of this step were started

  // of the step under way
  int64_t step_ = 0;
  double learning_rate_ = 0;
  bool has_begun_ = false;  // the optimizer has
  bool skips_ = false;
};

}  // namespace smp
