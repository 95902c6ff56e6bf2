#include "training/best_so_far.h"

namespace smp::training {

bool BestSoFar::take(int64_t step, double loss) {
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

void BestSoFar::forget_lowest() {
  state_.loss = std::numeric_limits<double>::infinity();
  state_.step = 0;
}

}  // namespace smp::training
