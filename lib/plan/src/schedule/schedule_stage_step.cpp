#include <algorithm>
#include <string>

#include "schedule/schedule_stage_check.h"

// The rules from complete gradients to the end of the step: reductions, updates, and gathers of
// updated weights.
namespace smp::schedule {
StageCheck::Problem StageCheck::reduce_kv(const Action& action) {
  if (!parameters_.kv_replicated) return "no KV head is replicated";
  const int64_t at = place(action.layer);
  if (!is_block(action.layer) || at == static_cast<int64_t>(layers_.size())) {
    return "the layer is not a block of this stage";
  }
  const int64_t last = shards_gradients() ? action.microbatch : shape_.microbatches - 1;
  if (gradients_[static_cast<size_t>(at)] <= last) {
    return "a microbatch has not passed the layer backward";
  }
  if (!reduced_kv_.insert({action.layer, last}).second) return "the action was already done";
  return std::nullopt;
}

bool StageCheck::has_bucket(int64_t bucket) const {
  return bucket >= 0 && bucket < static_cast<int64_t>(bucket_first_layers_.size());
}

// Places of a bucket's layers: [first, last).
std::pair<int64_t, int64_t> StageCheck::places_of(size_t bucket) const {
  return {place(bucket_first_layers_[bucket]), place(bucket_last_layers_[bucket]) + 1};
}

StageCheck::Problem StageCheck::reduce(const Action& action) {
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  const auto [first, last] = places_of(bucket);
  if (Problem problem = gradients_of(first, last)) return problem;
  for (int64_t i = first; i < last; ++i) {
    const int64_t layer = layers_[static_cast<size_t>(i)];
    if (!kv_summed(layer, shape_.microbatches - 1)) {
      return "the KV gradients of layer " + std::to_string(layer) + " are not summed yet";
    }
    if (layer == 0 && parameters_.tied_across_stages && !arrived(Payload::kTiedGradient, 0)) {
      return "the tied gradient has not arrived";
    }
  }
  if (reduced_[bucket] != Progress::kNone) return "the action was already started";
  if (Problem problem = too_many_reductions()) return problem;
  reduced_[bucket] = Progress::kStarted;
  ++in_flight_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::too_many_reductions() const {
  const int64_t most = parameters_.most_reductions;
  if (most == 0 || in_flight_ < most) return std::nullopt;
  return std::to_string(in_flight_) + " reductions are in flight, the most";
}

StageCheck::Problem StageCheck::end_reduction(const Action& action) {
  if (has_bucket(action.bucket) && shards_gradients()) {
    if (Problem problem = end_microbatch(action)) return problem;
  }
  if (Problem problem = end_bucket(action, reduced_)) return problem;
  --in_flight_;
  return std::nullopt;
}

// All ranks of a stage have one list, so second halves start in the same order on all replicas.
StageCheck::Problem StageCheck::reduce_replicas(const Action& action) {
  if (!parameters_.has_replicas) return "the shards have no replicas";
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  if (Problem problem = shards_reduced(bucket)) return problem;
  if (replicas_[bucket] != Progress::kNone) return "the action was already started";
  if (Problem problem = too_many_reductions()) return problem;
  replicas_[bucket] = Progress::kStarted;
  ++in_flight_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_replicas(const Action& action) {
  if (Problem problem = end_bucket(action, replicas_)) return problem;
  --in_flight_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::gradient_norm(const Action& action) {
  if (stepped_) return "the action comes after the step";
  if (parameters_.early_updates) return "an early update sums the squares itself";
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  if (Problem problem = reduced(bucket)) return problem;
  if (has_norm_[bucket]) return "the action was already done";
  has_norm_[bucket] = true;
  return std::nullopt;
}

StageCheck::Problem StageCheck::norms_missing() const {
  for (size_t b = 0; !parameters_.early_updates && b < has_norm_.size(); ++b) {
    if (!has_norm_[b]) return "the norm lacks bucket " + std::to_string(b);
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_bucket(const Action& action, std::vector<Progress>& buckets) {
  if (!has_bucket(action.bucket)) return "the awaited action was never started";
  Progress& progress = buckets[static_cast<size_t>(action.bucket)];
  if (progress == Progress::kNone) return "the awaited action was never started";
  if (progress == Progress::kEnded) return "the action was already awaited";
  progress = Progress::kEnded;
  return std::nullopt;
}

bool StageCheck::kv_summed(int64_t layer, int64_t microbatch) const {
  return !parameters_.kv_replicated || !is_block(layer) ||
         reduced_kv_.contains({layer, microbatch});
}

// The shard group's sums of all microbatches; without sharding, those of all data-parallel ranks.
StageCheck::Problem StageCheck::shards_reduced(size_t bucket) const {
  const bool all = !shards_gradients() || reductions_[bucket] == shape_.microbatches;
  if (all && reduced_[bucket] == Progress::kEnded) return std::nullopt;
  return "bucket " + std::to_string(bucket) + " is not reduced yet";
}

StageCheck::Problem StageCheck::reduced(size_t bucket) const {
  if (Problem problem = shards_reduced(bucket)) return problem;
  if (!parameters_.has_replicas || replicas_[bucket] == Progress::kEnded) return std::nullopt;
  return "bucket " + std::to_string(bucket) + " is not reduced over the replicas yet";
}

StageCheck::Problem StageCheck::everything_reduced() const {
  for (size_t b = 0; b < reduced_.size(); ++b) {
    if (Problem problem = reduced(b)) return problem;
  }
  if (shards_gradients()) return std::nullopt;
  for (const int64_t layer : layers_) {
    if (!kv_summed(layer, shape_.microbatches - 1)) {
      return "the KV gradients of layer " + std::to_string(layer) + " are not summed yet";
    }
  }
  if (parameters_.tied_across_stages && stage_ == 0 && !arrived(Payload::kTiedGradient, 0)) {
    return "the tied gradient has not arrived";
  }
  return std::nullopt;
}

StageCheck::Problem StageCheck::step() {
  if (shape_.forward_only) return "this schedule evaluates";
  if (stepped_) return "the step was already done";
  if (Problem problem = gradients_of(0, static_cast<int64_t>(layers_.size()))) return problem;
  if (Problem problem = everything_reduced()) return problem;
  if (Problem problem = norms_missing()) return problem;
  if (Problem problem = weights_freed()) return problem;
  stepped_ = true;
  return std::nullopt;
}

// The layer's weights must not be updated yet.
StageCheck::Problem StageCheck::not_updated(const Action& action) const {
  for (const int32_t bucket : buckets_.weights(action)) {
    if (bucket < 0 || !updated_[static_cast<size_t>(bucket)]) continue;
    return "the weights of bucket " + std::to_string(bucket) + " are updated already";
  }
  if (bucket_first_layers_.empty() && updated_.front()) return "the weights are updated already";
  return std::nullopt;
}

StageCheck::Problem StageCheck::update(const Action& action) {
  if (shape_.forward_only) return "this schedule evaluates";
  const bool has_buckets = !bucket_first_layers_.empty();
  if (has_buckets ? !has_bucket(action.bucket) : action.bucket >= 0) {
    return "the bucket is not of this stage";
  }
  const auto bucket = static_cast<size_t>(std::max(action.bucket, 0));
  if (!stepped_) {
    if (!parameters_.early_updates) return "the norm of all gradients is not known yet";
    if (Problem problem = has_buckets ? reduced(bucket) : everything_reduced()) return problem;
    const auto layers = static_cast<int64_t>(layers_.size());
    if (Problem problem = has_buckets ? std::nullopt : gradients_of(0, layers)) return problem;
    if (Problem problem = weights_freed()) return problem;
  }
  if (parameters_.sharded && gathered_[bucket] != Progress::kEnded) {
    return "the gather of the step before may still read the weights";
  }
  if (updated_[bucket]) return "the action was already done";
  updated_[bucket] = true;
  if (!parameters_.sharded) return std::nullopt;
  gathered_[bucket] = Progress::kNone;
  is_updated_[bucket] = true;
  return std::nullopt;
}

// The stage that sends a tied weight has the whole weight at the end of the step.
bool StageCheck::gathers_within_step(size_t bucket) const {
  return parameters_.tied_across_stages && stage_ == 0 && bucket + 1 == gathered_.size();
}

// What the step before has left: the last buckets' gathers in flight, as many as may be.
StageCheck::Progress StageCheck::gathered_at_begin(size_t bucket) const {
  if (gathers_within_step(bucket)) return Progress::kEnded;
  const size_t last = gathered_.size() - 1;
  const auto before = static_cast<int64_t>(last - bucket) - (gathers_within_step(last) ? 1 : 0);
  const bool has_room = parameters_.most_gathers == 0 || before < parameters_.most_gathers;
  return has_room ? Progress::kStarted : Progress::kNone;
}

StageCheck::Problem StageCheck::gather(const Action& action) {
  if (!parameters_.sharded) return "the weights are not sharded";
  if (!has_bucket(action.bucket)) return "the bucket is not of this stage";
  const auto bucket = static_cast<size_t>(action.bucket);
  if (!is_updated_[bucket]) {
    return gathered_[bucket] == Progress::kStarted ? "the action was already started"
                                                   : "the weights are not updated yet";
  }
  if (parameters_.most_gathers > 0 && gathers_ == parameters_.most_gathers) {
    return std::to_string(gathers_) + " gathers are in flight, the most";
  }
  is_updated_[bucket] = false;
  gathered_[bucket] = Progress::kStarted;
  ++gathers_;
  return std::nullopt;
}

StageCheck::Problem StageCheck::end_gather(const Action& action) {
  if (Problem problem = end_bucket(action, gathered_)) return problem;
  --gathers_;
  return std::nullopt;
}

}  // namespace smp::schedule
