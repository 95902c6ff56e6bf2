#pragma once

namespace smp::engine {

struct StepResult {
  double loss = 0;        // mean over the targets of the global batch that count; same on all ranks
  double grad_norm = 0;   // global, before clipping; the same on all ranks
  double loss_scale = 1;  // of this step; 1 without fp16
  bool skipped = false;   // fp16: the gradients overflowed, so nothing was updated
};

}  // namespace smp::engine
