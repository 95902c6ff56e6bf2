#include "training/best_evaluation.h"

namespace smp::training {

bool BestEvaluation::take(int64_t step, double loss) {
  const double improvement = state_.counted_loss - loss;
  if (loss < state_.counted_loss && improvement >= spec_.min_improvement) {
    state_.counted_loss = loss;
    state_.without = 0;
  } else {
    ++state_.without;
  }
  if (!(loss < state_.loss)) return false;
  state_.loss = loss;
  state_.step = step;
  return true;
}

void BestEvaluation::forget_lowest() {
  state_.loss = std::numeric_limits<double>::infinity();
  state_.step = 0;
}

}  // namespace smp::training
