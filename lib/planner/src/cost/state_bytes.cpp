#include "cost/state_bytes.h"

#include <algorithm>

#include "cost/in_engine.h"

namespace smp::cost {
namespace {

constexpr StateBytes unmixed(double element) {
  return {element, element, 0, 0, element, element, element, element, true};
}

StateBytes with_adam(const JobSpec& job, const choice::LayoutChoice& choice) {
  const framework::FrameworkModel& framework = framework::framework_model(job);
  if (choice.precision == Precision::kFp32) return unmixed(4);
  if (choice.precision == Precision::kFp64) return unmixed(8);
  const bool half_only = job.training.optimizer.master_weights == MasterKind::kNone;
  if (framework.fp32_weights && half_only) return {2, 2, 0, 0, 4, 4, 2, 2 + 4, true};
  // fp32 shards; 16-bit while gathered. Gradients are 16 bits wide until they are copied to the
  // fp32 message of their reduce-scatter.
  if (framework.fp32_weights) return {4, 4, 0, 0, 4, 4, 2, 2 + 4, true};
  const bool fp16 = choice.precision == Precision::kFp16;
  const bool beside = framework.fp32_sum_beside_gradients;
  const bool sums = beside && choice.sharding <= Sharding::kOptimizerState;
  const bool ours = runs_in_engine(job);  // one gradient, in fp32
  const bool fp32 = ours || job.training.accumulate_gradients_in_fp32.value_or(
                                fp16 ? framework.fp32_gradients_with_fp16
                                     : framework.fp32_gradients_with_bf16 && (sums || !beside));
  StateBytes bytes{2, 2, 0, 4, 4, 4, 2, 2, true};
  if (fp32 && sums && !fp16) {
    bytes.gradient_copy = 4;
    bytes.copy_sharded = false;
  } else if (fp32) {
    bytes.gradient = bytes.unreduced = 4;
  } else if (fp16 && framework.gradient_copy_in_fp32) {
    bytes.gradient_copy = 4;
  }
  return bytes;
}

double moment_bytes(MomentKind kind) {
  switch (kind) {
    case MomentKind::kFp32: return 4;
    case MomentKind::kBf16:
    case MomentKind::kFp16: return 2;
    case MomentKind::kFp8: return 1;
    case MomentKind::kInt8: return 1 + 4.0 / 256;  // bitsandbytes: a scale for a block
  }
  return 4;
}

}  // namespace

double element_bytes(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return 4;
    case Precision::kFp64: return 8;
    case Precision::kBf16:
    case Precision::kFp16:
    case Precision::kFp8:
    case Precision::kNvfp4: return 2;
  }
  return 2;
}

StateBytes state_bytes(const JobSpec& job, const choice::LayoutChoice& choice) {
  StateBytes bytes = with_adam(job, choice);
  const OptimizerSpec& optimizer = job.training.optimizer;
  if (bytes.master > 0 && optimizer.master_weights != MasterKind::kFp32) {
    bytes.master = optimizer.master_weights == MasterKind::kNone ? 0 : 2;
  }
  if (optimizer.momentum_dtype != MomentKind::kFp32) {
    bytes.momentum = moment_bytes(optimizer.momentum_dtype);
  }
  if (optimizer.variance_dtype != MomentKind::kFp32) {
    bytes.variance = moment_bytes(optimizer.variance_dtype);
  }
  if (optimizer.kind == OptimizerKind::kSgd) {
    bytes.variance = 0;
    if (optimizer.momentum == 0) bytes.momentum = 0;
  }
  return bytes;
}

ShardRanks shard_ranks(const JobSpec& job, const choice::LayoutChoice& choice) {
  if (choice.sharding == Sharding::kNone) return {};
  ShardRanks ranks;
  ranks.dense =
      choice.shard * (framework::framework_model(job).context_shards_states ? choice.context : 1);
  const double cut = double{1} * choice.expert * std::max(1, choice.expert_tensor);
  ranks.experts = std::max(1.0, ranks.dense * choice.tensor / cut);
  return ranks;
}

}  // namespace smp::cost
