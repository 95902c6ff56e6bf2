#include "smp/plan/spec/plan.h"

#include "smp/plan/base/check.h"

namespace smp {

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

void close_plain_keys(JobSpec& job) {
  const auto close = [](auto& key, auto value) {
    if (!key) key = value;
  };
  ParallelSpec& parallel = job.parallel;
  close(parallel.context_parallel_degree, int64_t{1});
  close(parallel.context_exchange_degree, int64_t{1});
  if (job.model.num_experts > 0) {
    close(parallel.expert_parallel_degree, int64_t{1});
    close(parallel.expert_tensor_degree,
          default_expert_tensor(job, *parallel.expert_parallel_degree,
                                parallel.tensor_parallel_degree.value_or(1)));
  }
  close(parallel.sequence_parallel, false);
  close(parallel.virtual_pipeline_degree, int64_t{parallel.pipeline == PipelineKind::kZbV ? 2 : 1});
  close(parallel.recompute,
        parallel.activation_checkpointing == true ? Recompute::kFull : Recompute::kNone);
  close(parallel.activation_checkpointing, parallel.recompute == Recompute::kFull);
  close(parallel.offload_activations, false);
  close(parallel.offload_optimizer, false);
  close(parallel.offload_parameters, false);
}

bool exchanges_rows(const JobSpec& job) {
  return job.parallel.framework.is_engine() && job.cluster.device == DeviceKind::kCpu;
}

int64_t default_expert_tensor(const JobSpec& job, int64_t expert, int64_t tensor) {
  return exchanges_rows(job) && expert > 1 ? 1 : tensor;
}

DType compute_dtype(const Plan& plan) {
  SMP_CHECK(plan.job.training.precision.has_value());
  switch (*plan.job.training.precision) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16:
    case Precision::kFp8:
    case Precision::kNvfp4: return DType::kBF16;  // what lies between the matmuls
    case Precision::kFp16: return DType::kF16;
  }
  check_failed(__FILE__, __LINE__, "unknown precision");
}

}  // namespace smp
