#include "state_bytes.h"

#include <algorithm>

namespace smp {

StateBytes state_bytes(const JobSpec& job, Precision precision) {
  const Habits& habits = habits_of(job);
  if (precision == Precision::kFp32) return {4, 4, 0, 0, 4, 4, 4, true};
  if (precision == Precision::kFp64) return {8, 8, 0, 0, 8, 8, 8, true};
  const bool fp16 = precision == Precision::kFp16;
  if (habits.fp32_weights) return {4, 4, 0, 0, 4, 4, 2, true};
  const bool fp32_sum = job.training.accumulate_gradients_in_fp32.value_or(
      fp16 ? habits.fp32_gradients_with_fp16
           : habits.fp32_gradients_with_bf16 || habits.fp32_sum_beside_gradients);
  StateBytes bytes{2, 2, 0, 4, 4, 4, 2, true};
  if (fp32_sum && habits.fp32_sum_beside_gradients) {
    bytes.gradient_copy = 4;
    bytes.copy_sharded = false;
  } else if (fp32_sum) {
    bytes.gradient = 4;
  } else if (fp16 && habits.gradient_copy_in_fp32) {
    bytes.gradient_copy = 4;
  }
  return bytes;
}

ShardRanks shard_ranks(const JobSpec& job, const LayoutChoice& choice) {
  if (choice.sharding == Sharding::kNone) return {};
  ShardRanks ranks;
  ranks.dense = choice.shard * (habits_of(job).context_shards_states ? choice.context : 1);
  const double cut = double{1} * choice.expert * std::max(1, choice.expert_tensor);
  ranks.experts = std::max(1.0, ranks.dense * choice.tensor / cut);
  return ranks;
}

}  // namespace smp
