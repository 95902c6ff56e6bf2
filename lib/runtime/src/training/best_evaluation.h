#pragma once

#include <cstdint>
#include <limits>

#include "smp/plan/spec/job_spec.h"

namespace smp::training {

// The evaluation with the lowest loss of a run, and the number of evaluations since the last
// improvement (early stopping). The same on all ranks, as evaluation losses are. Used by the rank's
// own thread.
class BestEvaluation {
 public:
  struct State {
    double loss = std::numeric_limits<double>::infinity();  // the lowest
    int64_t step = 0;                                       // of that evaluation; 0 = none
    // The loss of the last improvement by at least min_improvement. It differs from `loss` if later
    // evaluations were lower by less than that.
    double counted_loss = std::numeric_limits<double>::infinity();
    int64_t without = 0;  // evaluations since then
  };

  explicit BestEvaluation(const EvaluationSpec& spec) : spec_(spec) {}

  // Records the loss after `step` steps; true: it is the lowest so far. NaN is no improvement.
  bool take(int64_t step, double loss);

  // training.evaluation.patience is exhausted.
  bool is_exhausted() const { return spec_.patience > 0 && state_.without >= spec_.patience; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

  // Makes the next evaluation the best, because the checkpoint of the best one is missing.
  void forget_lowest();

 private:
  EvaluationSpec spec_;
  State state_;
};

}  // namespace smp::training
