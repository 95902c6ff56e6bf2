#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The parts of a layer that `recompute: selective` drops in frameworks where a job names them:
// megatron/core/transformer/transformer_config.py, recompute_modules. Pure; safe from any thread.
namespace smp {

struct RecomputeModules {
  bool core_attention = false;
  bool mlp = false;             // of blocks without experts
  bool moe = false;             // experts, router and exchanges
  bool moe_activation = false;  // what an expert's second matmul reads
  bool norms = false;           // those that are no part of a fused matmul
  bool mla_up = false;          // latent attention's up projections and rotary positions
  bool shared_experts = false;
};

// Those of parallel.recompute_modules; without a list the core of attention.
RecomputeModules recompute_modules(const ParallelSpec& parallel);

bool is_recompute_module(const std::string& name);

// Why the list is no list of modules of such a model; empty if it is one.
std::string problem_of_recompute_modules(const std::vector<std::string>& modules,
                                         const ModelSpec& model);

}  // namespace smp
