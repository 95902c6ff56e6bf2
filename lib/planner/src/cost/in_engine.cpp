#include "cost/in_engine.h"

#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"

namespace smp::cost {

DType engine_dtype(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16:
    case Precision::kFp8:
    case Precision::kNvfp4: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
  }
  return DType::kF32;
}

bool is_of_engine(const JobSpec& job) {
  if (!job.parallel.framework.is_engine()) return false;
  return model::is_mixture_decoder(job.model) || model::is_dense_decoder(job.model) ||
         model::is_dense_encoder_decoder(job.model) || model::is_list(job.model);
}

bool runs_in_engine(const JobSpec& job) {
  return job.cluster.device == DeviceKind::kCpu && is_of_engine(job);
}

bool recomputes_mlps(const JobSpec& job) {
  return is_of_engine(job) && job.training.attention == AttentionKind::kFlash;
}

}  // namespace smp::cost
