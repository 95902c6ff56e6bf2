#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::optim {

// The learning rate of step `step` (from 0) of `steps`. A linear warm-up over warmup_steps comes
// first; the first step already has a rate above 0. The spec's schedule follows; linear, cosine and
// wsd reach min_learning_rate in the last step. Linear and cosine equal torch.optim.lr_scheduler's
// LinearLR and CosineAnnealingLR with the steps after the warm-up as total_iters and T_max. wsd is
// constant until the last decay_steps, then linear (Hu et al. 2024, arXiv 2404.06395). Pure.
double learning_rate_at(const OptimizerSpec& spec, int64_t steps, int64_t step);

}  // namespace smp::optim
