#pragma once

#include <vector>

#include "smp/runtime/record/router_metrics.h"

namespace smp::engine {

// The same on all ranks.
struct StepResult {
  double loss = 0;                     // mean over the targets of the global batch that count
  std::vector<double> further_losses;  // of each further token, likewise; not in `loss`
  double grad_norm = 0;                // global, before clipping
  double loss_scale = 1;               // of this step; 1 without fp16
  bool skipped = false;                // fp16: the gradients overflowed, so nothing was updated
  std::vector<record::RouterMetrics> routers;  // by layer with experts
};

}  // namespace smp::engine
