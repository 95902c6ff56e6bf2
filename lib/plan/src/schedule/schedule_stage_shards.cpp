#include <string>

#include "schedule/schedule_stage_check.h"

// The rules for sharded weights and gradients: a layer computes while its weights are gathered, a
// buffer holds one bucket at a time, and a microbatch's gradients are reduced before the next
// microbatch overwrites them.
namespace smp::schedule {
namespace {

std::string bucket_text(int32_t bucket) { return "bucket " + std::to_string(bucket); }

}  // namespace

StageCheck::Problem StageCheck::shards_ready(const Action& action) const {
  for (const int32_t bucket : buckets_.weights(action)) {
    if (bucket < 0 || !(shards_weights() || parameters_.sharded)) continue;
    if (gathered_[static_cast<size_t>(bucket)] != Progress::kEnded) {
      return "the weights of " + bucket_text(bucket) + " are not gathered";
    }
  }
  if (!shards_gradients()) return std::nullopt;
  for (const int32_t bucket : buckets_.gradients(action)) {
    if (bucket < 0) continue;
    const int32_t buffer = gradient_buffers_[static_cast<size_t>(bucket)];
    for (size_t other = 0; other < reduced_.size(); ++other) {
      if (gradient_buffers_[other] != buffer || reduced_[other] != Progress::kStarted) continue;
      return "the buffer of the layer's gradients is still used by the reduction of " +
             bucket_text(static_cast<int32_t>(other));
    }
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::reduce_shards(const Action& action) {
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  if (action.bucket == buckets_.persistent()) {  // all microbatches' at once
    if (action.microbatch + 1 != shape_.microbatches)
      return "the bucket is reduced once, at the end of the step";
    if (Problem problem = reduce(action)) return problem;
    reductions_[bucket] = shape_.microbatches;
    return std::nullopt;
  }
  if (action.microbatch != reductions_[bucket]) {
    return "microbatch " + std::to_string(reductions_[bucket]) + " is reduced next";
  }
  const auto [first, last] = places_of(bucket);
  for (int64_t i = first; i < last; ++i) {
    const int64_t layer = layers_[static_cast<size_t>(i)];
    if (gradients_[static_cast<size_t>(i)] <= action.microbatch) {
      return "the microbatch has not passed layer " + std::to_string(layer) + " backward";
    }
    if (!kv_summed(layer, action.microbatch)) {
      return "the KV gradients of layer " + std::to_string(layer) + " are not summed yet";
    }
  }
  const bool is_last = action.microbatch + 1 == shape_.microbatches;
  const bool awaits_tied = bucket_first_layers_[bucket] == 0 && parameters_.tied_across_stages;
  if (is_last && awaits_tied && !arrived(Payload::kTiedGradient, 0)) {
    return "the tied gradient has not arrived";
  }
  if (reduced_[bucket] == Progress::kStarted)
    return "the previous reduction of the bucket has not ended";
  if (Problem problem = too_many_reductions()) return problem;
  reduced_[bucket] = Progress::kStarted;
  ++reductions_[bucket];
  ++in_flight_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_microbatch(const Action& action) {
  const auto bucket = static_cast<size_t>(action.bucket);
  if (reductions_[bucket] <= action.microbatch) return "the awaited action was never started";
  if (action.microbatch + 1 != reductions_[bucket]) return "the action was already awaited";
  return std::nullopt;
}

StageCheck::Problem StageCheck::gather_shards(const Action& action) {
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  for (size_t other = 0; other < gathered_.size(); ++other) {
    if (weight_buffers_[other] != weight_buffers_[bucket]) continue;
    if (gathered_[other] == Progress::kNone) continue;
    if (other == bucket) return "the action was already started";
    return "the buffer of the bucket holds " + bucket_text(static_cast<int32_t>(other));
  }
  gathered_[bucket] = Progress::kStarted;
  return std::nullopt;
}

StageCheck::Problem StageCheck::free_weights(const Action& action) {
  if (!shards_weights()) return "the weights are not sharded";
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  Progress& progress = gathered_[static_cast<size_t>(action.bucket)];
  if (progress != Progress::kEnded) return "the bucket is not gathered";
  progress = Progress::kNone;
  return std::nullopt;
}

StageCheck::Problem StageCheck::weights_freed() const {
  for (size_t bucket = 0; shards_weights() && bucket < gathered_.size(); ++bucket) {
    if (gathered_[bucket] == Progress::kNone) continue;
    return "the weights of " + bucket_text(static_cast<int32_t>(bucket)) + " are not freed";
  }
  return std::nullopt;
}

}  // namespace smp::schedule
