#include "smp/plan/plan.h"

#include "smp/plan/check.h"
#include "smp/plan/errors.h"

namespace smp {
namespace {

std::string equation(int64_t pipeline, int64_t tensor) {
  return "pipeline_parallel_degree (" + std::to_string(pipeline) + ") x tensor_parallel_degree (" +
         std::to_string(tensor) + ")";
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

Degrees degrees_of(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  SMP_CHECK(parallel.pipeline_parallel_degree && parallel.tensor_parallel_degree);
  SMP_CHECK(parallel.sharded_data_parallel_degree.has_value());
  const int64_t p = *parallel.pipeline_parallel_degree;
  const int64_t t = *parallel.tensor_parallel_degree;
  const int64_t z = *parallel.sharded_data_parallel_degree;
  const int64_t world = job.cluster.hosts * job.cluster.processes_per_host;
  if (p < 1 || t < 1 || world % (p * t) != 0) {
    throw ConfigError(equation(p, t) + " = " + std::to_string(p * t) + " does not divide the " +
                      std::to_string(world) + " processes of the cluster (" +
                      std::to_string(job.cluster.hosts) +
                      (job.cluster.hosts == 1 ? " host x " : " hosts x ") +
                      std::to_string(job.cluster.processes_per_host) + ")");
  }
  const int64_t d = world / (p * t);
  if (z < 1 || d % z != 0) {
    throw ConfigError("sharded_data_parallel_degree (" + std::to_string(z) +
                      ") does not divide the data-parallel degree " + std::to_string(d) + " = " +
                      std::to_string(world) + " / (" + std::to_string(p) + " x " +
                      std::to_string(t) + ")");
  }
  return {.pipeline = p, .tensor = t, .shard = z, .replica = d / z};
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
