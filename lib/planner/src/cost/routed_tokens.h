#pragma once

#include <algorithm>

#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_spec.h"

// How many tokens the experts of a rank take, over the mean of the ranks. Pure.
namespace smp::cost {

// Those that a capacity leaves of `share`: what exceeds it is dropped, and what fills it padded.
inline double within_capacity(const ModelSpec& model, double share) {
  if (model.expert_capacity_factor == 0) return share;
  return model.pad_experts_to_capacity ? model.expert_capacity_factor
                                       : std::min(share, model.expert_capacity_factor);
}

// Of the fullest rank, as the framework's routers fill it.
inline double fullest_share(const JobSpec& job) {
  return within_capacity(job.model, framework::framework_model(job).routed_tokens);
}

}  // namespace smp::cost
