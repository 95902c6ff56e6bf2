#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

#include "plan/model_samples.h"
#include "smp/plan/spec/job_spec.h"

// Random jobs for the properties that every search has.
namespace smp::test {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t of(std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(engine_() % values.size()));
  }
  bool coin() { return engine_() % 2 == 0; }

 private:
  std::mt19937_64 engine_;
};

inline ModelSpec some_model(Draw& draw) {
  ModelSpec model = draw.coin() ? llama2_7b() : gpt2_124m();
  model.num_layers = draw.of({1, 2, 3, 6, 7, 12, 24, 40});
  model.num_heads = draw.of({4, 8, 12, 16});
  model.num_kv_heads = model.family == ModelFamily::kLlama && draw.coin() ? 4 : model.num_heads;
  model.head_dim = 64;
  model.hidden_size = model.head_dim * model.num_heads;
  model.ffn_hidden_size = 4 * model.hidden_size;
  model.vocab_size = draw.of({1000, 32000});
  model.max_positions = 16384;
  return model;
}

// Jobs of every kind that finish quickly: 1 to 64 accelerators, small and large memories.
inline JobSpec some_job(Draw& draw) {
  JobSpec job;
  job.name = "random";
  job.model = some_model(draw);
  ClusterSpec& cluster = job.cluster;
  cluster.name = "random";
  cluster.hosts = draw.of({1, 1, 2, 3, 8});
  cluster.processes_per_host = draw.of({1, 2, 4, 7, 8});
  cluster.device = DeviceKind::kCuda;
  cluster.memory_per_process_bytes = draw.of({4, 8, 16, 40, 80}) << 30;
  cluster.reserved_bytes = int64_t{1} << 30;
  cluster.host_memory_bytes = draw.of({0, 64, 512}) << 30;
  cluster.has_bf16 = cluster.has_fp16 = true;
  cluster.half_flops_per_s = 312e12;
  cluster.fp32_flops_per_s = 19.5e12;
  cluster.memory_bytes_per_s = 1.5e12;
  cluster.host_link_bytes_per_s = draw.coin() ? 12e9 : 0;
  cluster.intra_host_bytes_per_s = 200e9;
  cluster.inter_host_bytes_per_s = 5e9;
  job.training.sequence_length = draw.of({512, 2048, 8192});
  if (draw.coin()) job.training.global_batch = draw.of({8, 48, 64, 96});
  if (draw.coin()) job.parallel.recompute = static_cast<Recompute>(draw.of({0, 2}));
  if (draw.of({0, 1, 2}) == 0) job.parallel.pipeline_parallel_degree = draw.of({1, 2});
  if (draw.of({0, 1, 2}) == 0) job.parallel.forbid = {"sharding=parameters", "micro_batch>4"};
  if (draw.of({0, 1, 2, 3}) == 0) job.training.attention = AttentionKind::kUnfused;
  return job;
}

}  // namespace smp::test
