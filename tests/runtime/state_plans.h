#pragma once

#include "smp/plan/model/model_family.h"
#include "smp/plan/spec/plan.h"

// Small resolved plans for the tests of lib/runtime: five blocks, hidden 32, four heads (Llama: two
// KV heads), a vocabulary that two does not divide.
namespace smp {

inline Plan small_plan(ModelFamily family, mesh::Degrees degrees) {
  Plan plan;
  ModelSpec& model = plan.job.model;
  model.name = "small";
  model::set_family(model, family);
  model.num_layers = 5;
  model.hidden_size = 32;
  model.num_heads = 4;
  model.num_kv_heads = family == ModelFamily::kLlama ? 2 : 4;
  model.head_dim = 8;
  model.ffn_hidden_size = family == ModelFamily::kLlama ? 88 : 128;
  model.vocab_size = 259;
  model.max_positions = 64;
  model.tied_embeddings = family == ModelFamily::kGpt2;
  plan.job.cluster.processes_per_host = degrees.world();
  plan.job.training.sequence_length = 16;
  plan.job.training.micro_batch = 2;
  plan.job.training.microbatches = 1;
  plan.job.training.global_batch = 2 * degrees.data();
  plan.job.training.precision = Precision::kFp64;
  plan.job.training.steps = 10;
  ParallelSpec& parallel = plan.job.parallel;
  parallel.pipeline_parallel_degree = degrees.pipeline;
  parallel.tensor_parallel_degree = degrees.tensor;
  parallel.sharded_data_parallel_degree = degrees.shard;
  parallel.shard_optimizer_state = degrees.shard > 1;
  parallel.sharding = degrees.shard > 1 ? Sharding::kOptimizerState : Sharding::kNone;
  parallel.pipeline = PipelineKind::kInterleaved;
  parallel.active_microbatches = 1;
  parallel.bucket_bytes = 40000;  // several buckets a stage
  parallel.shard_bucket_bytes = 1;
  plan.degrees = degrees;
  return plan;
}

}  // namespace smp
