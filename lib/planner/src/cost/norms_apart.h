#pragma once

#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/job_spec.h"

// Norms that are modules of their own: Transformer Engine makes those before a dense layer's
// matmuls a part of them (megatron/core/models/gpt/gpt_layer_specs.py); the one before experts
// always is. Pure.
namespace smp::cost {

inline bool has_norm_before_mlp(const JobSpec& job) {
  return !framework::framework_model(job).transformer_engine;
}

// Latent attention has several matmuls of the same normed input.
inline bool has_norm_before_attention(const JobSpec& job) {
  return job.model.kv_lora_rank > 0 || has_norm_before_mlp(job);
}

}  // namespace smp::cost
