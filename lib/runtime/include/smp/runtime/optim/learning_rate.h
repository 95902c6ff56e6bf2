#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::optim {

// The learning rate of step `step`, counted from 0, of `steps`: a linear warm-up over warmup_steps
// (the first step already has a rate above 0), then the spec's schedule, which for linear, cosine
// and wsd is at min_learning_rate in the last step. As torch.optim.lr_scheduler's LinearLR and
// CosineAnnealingLR with the steps after the warm-up as total_iters and T_max; wsd is constant
// until the last decay_steps, then linear (Hu et al. 2024, arXiv 2404.06395). Pure.
double learning_rate_at(const OptimizerSpec& spec, int64_t steps, int64_t step);

}  // namespace smp::optim
