#pragma once

#include "plan/model_samples.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/spec/plan.h"

// Resolved plans for tests, without a planner.
namespace smp {

struct SampleLayout {
  int64_t pipeline = 1;
  int64_t tensor = 1;
  int64_t shard = 1;
  int64_t replica = 1;
  int64_t microbatches = 4;
  int64_t bucket_bytes = 25 << 20;
  int64_t shard_bucket_bytes = 1;  // one layer each
  PipelineKind pipeline_kind = PipelineKind::kInterleaved;
  Precision precision = Precision::kFp32;
  bool sequence_parallel = false;
};

inline Plan sample_plan(const ModelSpec& model, const SampleLayout& layout) {
  Plan plan;
  JobSpec& job = plan.job;
  job.name = "sample";
  job.model = model;
  job.cluster.name = "local";
  job.cluster.processes_per_host = layout.pipeline * layout.tensor * layout.shard * layout.replica;
  job.cluster.memory_per_process_bytes = 1 << 30;
  job.training.sequence_length = 16;
  job.training.micro_batch = 2;
  job.training.microbatches = layout.microbatches;
  job.training.global_batch = 2 * layout.microbatches * layout.shard * layout.replica;
  job.training.precision = layout.precision;
  job.training.steps = 50;
  job.training.data_path = "python-stdlib";
  job.training.data_tokens = TokenKind::kBytes;  // whatever vocabulary the model has
  job.parallel.pipeline_parallel_degree = layout.pipeline;
  job.parallel.tensor_parallel_degree = layout.tensor;
  job.parallel.sharded_data_parallel_degree = layout.shard;
  job.parallel.shard_optimizer_state = layout.shard > 1 && layout.replica == 1;
  job.parallel.sharding = layout.shard > 1 ? Sharding::kOptimizerState : Sharding::kNone;
  job.parallel.pipeline = layout.pipeline_kind;
  job.parallel.sequence_parallel = layout.sequence_parallel;
  job.parallel.active_microbatches = layout.microbatches;
  job.parallel.activation_checkpointing = false;
  job.parallel.offload_activations = false;
  job.parallel.delayed_parameter_initialization = true;
  job.parallel.bucket_bytes = layout.bucket_bytes;
  job.parallel.shard_bucket_bytes = layout.shard_bucket_bytes;
  close_plain_keys(job);
  plan.degrees = rules::degrees_of(job);
  return plan;
}

}  // namespace smp
