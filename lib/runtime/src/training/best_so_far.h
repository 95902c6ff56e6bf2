#pragma once

#include <cstdint>
#include <limits>

#include "smp/plan/spec/job_spec.h"

namespace smp::training {

// The evaluation with the lowest loss of a run, and how many in a row brought no improvement. The
// same on all ranks, as evaluation losses are. Used by the rank's own thread.
class BestSoFar {
 public:
  struct State {
    double loss = std::numeric_limits<double>::infinity();  // the lowest
    int64_t step = 0;                                       // that it was taken after; 0 = none
    // Improvement is counted from here: the lowest loss when there was one last. It is not `loss`
    // where min_improvement asks for more than the steps between them brought.
    double counted_loss = std::numeric_limits<double>::infinity();
    int64_t without = 0;  // evaluations since then
  };

  explicit BestSoFar(const EvaluationSpec& spec) : spec_(spec) {}

  // The loss after `step` steps; true: the lowest so far. A loss that is no number is no
  // improvement.
  bool take(int64_t step, double loss);

  // training.evaluation.patience is exhausted.
  bool is_exhausted() const { return spec_.patience > 0 && state_.without >= spec_.patience; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

  // The next evaluation is the best: the checkpoint of the best one is not there.
  void forget_lowest();

 private:
  EvaluationSpec spec_;
  State state_;
};

}  // namespace smp::training
