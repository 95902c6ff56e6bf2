#include "smp/plan/spec/plan.h"

#include <fmt/format.h>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp {
namespace {

std::string equation(int64_t pipeline, int64_t tensor, int64_t context) {
  std::string text =
      fmt::format("pipeline_parallel_degree ({}) x tensor_parallel_degree ({})", pipeline, tensor);
  if (context > 1) text += fmt::format(" x context_parallel_degree ({})", context);
  return text;
}

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kWeights: return "weights";
    case MemoryCategory::kGradients: return "gradients";
    case MemoryCategory::kOptimizer: return "optimizer";
    case MemoryCategory::kActivations: return "activations";
    case MemoryCategory::kWorkspace: return "workspace";
    case MemoryCategory::kCommunication: return "communication";
    case MemoryCategory::kData: return "data";
  }
  check_failed(__FILE__, __LINE__, "unknown memory category");
}

mesh::Degrees degrees_of(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  SMP_CHECK(parallel.pipeline_parallel_degree && parallel.tensor_parallel_degree);
  SMP_CHECK(parallel.sharded_data_parallel_degree.has_value());
  const int64_t p = *parallel.pipeline_parallel_degree;
  const int64_t t = *parallel.tensor_parallel_degree;
  const int64_t c = parallel.context_parallel_degree.value_or(1);
  const int64_t z = *parallel.sharded_data_parallel_degree;
  const ClusterSpec& cluster = job.cluster;
  const int64_t world = cluster.hosts * cluster.processes_per_host;
  if (p < 1 || t < 1 || c < 1 || world % (p * t * c) != 0) {
    throw ConfigError(
        fmt::format("{} = {} does not divide the {} processes of the cluster ({} {} x {})",
                    equation(p, t, c), p * t * c, world, cluster.hosts,
                    cluster.hosts == 1 ? "host" : "hosts", cluster.processes_per_host));
  }
  const int64_t d = world / (p * t * c);
  if (z < 1 || d % z != 0) {
    throw ConfigError(fmt::format(
        "sharded_data_parallel_degree ({}) does not divide the data-parallel degree {} = {} / ({} "
        "x {}{})",
        z, d, world, p, t, c > 1 ? fmt::format(" x {}", c) : ""));
  }
  mesh::Degrees degrees{.pipeline = p, .tensor = t, .shard = z, .replica = d / z, .context = c};
  if (job.model.num_experts > 0) {
    degrees.expert = parallel.expert_parallel_degree.value_or(1);
    degrees.expert_tensor = parallel.expert_tensor_degree.value_or(t);
    const int64_t ranks = t * c * d;
    if (ranks % (degrees.expert * degrees.expert_tensor) != 0) {
      throw ConfigError(fmt::format(
          "expert_parallel_degree ({}) x expert_tensor_degree ({}) = {} does not divide the {} "
          "ranks of a stage ({} x {} x {})",
          degrees.expert, degrees.expert_tensor, degrees.expert * degrees.expert_tensor, ranks, t,
          c, d));
    }
  }
  return degrees;
}

void close_plain_keys(JobSpec& job) {
  const auto close = [](auto& key, auto value) {
    if (!key) key = value;
  };
  ParallelSpec& parallel = job.parallel;
  close(parallel.context_parallel_degree, int64_t{1});
  if (job.model.num_experts > 0) {
    close(parallel.expert_parallel_degree, int64_t{1});
    close(parallel.expert_tensor_degree, parallel.tensor_parallel_degree.value_or(1));
  }
  close(parallel.sequence_parallel, false);
  close(parallel.virtual_pipeline_degree, int64_t{parallel.pipeline == PipelineKind::kZbV ? 2 : 1});
  close(parallel.recompute,
        parallel.activation_checkpointing == true ? Recompute::kFull : Recompute::kNone);
  close(parallel.activation_checkpointing, parallel.recompute == Recompute::kFull);
  close(parallel.offload_activations, false);
  close(parallel.offload_optimizer, false);
  close(parallel.offload_parameters, false);
  close(parallel.profile, Profile::kSmp);
}

DType compute_dtype(const Plan& plan) {
  SMP_CHECK(plan.job.training.precision.has_value());
  switch (*plan.job.training.precision) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16:
    case Precision::kFp8: return DType::kBF16;  // what lies between the matmuls
    case Precision::kFp16: return DType::kF16;
  }
  check_failed(__FILE__, __LINE__, "unknown precision");
}

}  // namespace smp
