#include "step_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace smp {

// Norm and loss travel together: one message a step tells every rank how to clip, what to print and
// whether to stop. Each gradient element and each sample's loss enters on one rank only.
StepResult StepUpdate::run(int64_t step, double learning_rate, double loss) {
  const Coord& coord = model_.parameters->layout().coord;
  // Ranks without the head have summed nothing; those of a tensor group have the same loss.
  double sums[2] = {model_.optimizer->local_norm_squared(), coord.tensor == 0 ? loss : 0.0};
  if (model_.groups->world().size() > 1) {
    model_.groups->world()
        .all_reduce(sums, sums, 2, DType::kF64, ReduceOp::kSum, "step.norm_and_loss")
        ->wait();
  }
  StepResult result;
  result.grad_norm = std::sqrt(sums[0]);
  result.loss = sums[1];
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw TrainingError(fmt::format(
        "step {}: the loss is {} and the gradient norm {}; training cannot go on. Try a lower "
        "training.optimizer.learning_rate (here {}) or more warmup_steps",
        step + 1, result.loss, result.grad_norm, learning_rate));
  }
  // As torch.nn.utils.clip_grad_norm_: with 1e-6 beside the norm, and never enlarging.
  const double limit = plan_.job.training.optimizer.gradient_clipping;
  const double scale = limit > 0 ? std::min(1.0, limit / (result.grad_norm + 1e-6)) : 1.0;
  model_.optimizer->step(learning_rate, scale);
  return result;
}

}  // namespace smp
