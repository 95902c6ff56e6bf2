#include "smp/planner/memory/bytes_per_parameter.h"

#include "cost/in_engine.h"
#include "smp/plan/base/check.h"

namespace smp::memory {

BytesPerParameter bytes_per_parameter(const JobSpec& job) {
  const auto with_adam = [&] {
    switch (*job.training.precision) {
      case Precision::kFp32: return kFp32;
      case Precision::kFp64: return kFp64;
      case Precision::kBf16:
      case Precision::kFp8:
      case Precision::kNvfp4: return kBf16;
      case Precision::kFp16: return cost::runs_in_engine(job) ? kBf16 : kAmpAdam;
    }
    check_failed(__FILE__, __LINE__, "unknown precision");
  };
  BytesPerParameter bytes = with_adam();
  const OptimizerSpec& optimizer = job.training.optimizer;
  if (optimizer.kind == OptimizerKind::kSgd) {
    bytes.variance = 0;
    if (optimizer.momentum == 0) bytes.momentum = 0;
  }
  return bytes;
}

}  // namespace smp::memory
