#include "schedule/shard_actions.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "smp/plan/base/check.h"

namespace smp::schedule {
namespace {

constexpr int32_t kNobody = -1;
constexpr LayerBuckets::Used kNone{kNobody, kNobody, kNobody};

// Bound of the search for the next layers, in uses of one layer: a layer is used at most this often
// before the next layer is used.
constexpr int64_t kUsesOfLayer = 4;

size_t buffers_of(const std::vector<int32_t>& by_bucket) {
  return static_cast<size_t>(*std::max_element(by_bucket.begin(), by_bucket.end()) + 1);
}

// An action of a stage that needs the gathered weights of a bucket.
struct Use {
  size_t action = 0;
  int32_t bucket = kNobody;
};

class ShardWriter {
 public:
  ShardWriter(std::vector<Action> actions, const ScheduleParameters& parameters, int64_t stage)
      : parameters_(parameters), buckets_(parameters, stage), in_(std::move(actions)) {
    weight_buffers_ = parameters.weight_buffers[static_cast<size_t>(stage)];
    holder_.assign(buffers_of(weight_buffers_), kNobody);
    is_ready_.assign(weight_buffers_.size(), false);
    for (size_t i = 0; i < in_.size(); ++i) {
      for (const int32_t bucket : buckets_.weights(in_[i])) {
        if (bucket >= 0 && bucket != buckets_.persistent()) uses_.push_back({i, bucket});
      }
    }
  }

  std::vector<Action> write() {
    out_.reserve(in_.size() + in_.size() / 2);
    for (size_t i = 0; i < in_.size(); ++i) {
      const Action& action = in_[i];
      gather_for(i);
      out_.push_back(action);
      const bool sent = action.kind == ActionKind::kSendWait;
      if (sent && action.payload == Payload::kTiedWeight) free_all();
    }
    free_all();  // of a list without a step
    return std::move(out_);
  }

 private:
  void emit(ActionKind kind, int32_t bucket) { out_.push_back({.kind = kind, .bucket = bucket}); }

  int32_t& holder_of(int32_t bucket) {
    return holder_[static_cast<size_t>(weight_buffers_[static_cast<size_t>(bucket)])];
  }

  void gather_for(size_t index) {
    const Action& action = in_[index];
    if (action.kind == ActionKind::kStep || action.kind == ActionKind::kUpdate) return free_all();
    if (action.kind == ActionKind::kSend && action.payload == Payload::kTiedWeight) {
      gather(buckets_.table());
      return wait_gather(buckets_.table());
    }
    gather_persistent(action);
    if (next_use_ == uses_.size() || uses_[next_use_].action != index) return;
    size_t after = next_use_;
    while (after < uses_.size() && uses_[after].action == index) ++after;
    start_gathers(after);
    for (; next_use_ < after; ++next_use_) wait_gather(uses_[next_use_].bucket);
  }

  void gather_persistent(const Action& action) {
    const int32_t bucket = buckets_.persistent();
    if (bucket < 0 || buckets_.weights(action).back() != bucket) return;
    if (holder_of(bucket) != bucket) gather(bucket);
    wait_gather(bucket);
  }

  // Gathers for the uses from next_use_ to `after` and for the prefetched layers. A gather needs a
  // buffer whose content no earlier use needs.
  void start_gathers(size_t after) {
    ahead_.clear();
    const auto window = static_cast<size_t>(kUsesOfLayer * (1 + parameters_.prefetch_layers));
    const size_t end_of_window = std::min(uses_.size(), after + window);
    for (size_t i = next_use_; i < end_of_window; ++i) {
      const int32_t bucket = uses_[i].bucket;
      const auto is_used = [&](int32_t other, size_t end) {
        return std::any_of(uses_.begin() + static_cast<std::ptrdiff_t>(next_use_),
                           uses_.begin() + static_cast<std::ptrdiff_t>(end),
                           [&](const Use& use) { return use.bucket == other; });
      };
      if (i >= after && !is_used(bucket, after) &&
          std::find(ahead_.begin(), ahead_.end(), bucket) == ahead_.end()) {
        if (static_cast<int64_t>(ahead_.size()) == parameters_.prefetch_layers) return;
        ahead_.push_back(bucket);
      }
      const int32_t held = holder_of(bucket);
      if (held == bucket) continue;
      if (held != kNobody && is_used(held, i)) {
        SMP_CHECK(i >= after);  // one action's buckets have buffers of their own
        return;
      }
      gather(bucket);
    }
  }

  void gather(int32_t bucket) {
    int32_t& holder = holder_of(bucket);
    if (holder != kNobody) emit(ActionKind::kFree, holder);
    holder = bucket;
    is_ready_[static_cast<size_t>(bucket)] = false;
    emit(ActionKind::kGather, bucket);
  }

  void wait_gather(int32_t bucket) {
    if (is_ready_[static_cast<size_t>(bucket)]) return;
    is_ready_[static_cast<size_t>(bucket)] = true;
    emit(ActionKind::kGatherWait, bucket);
  }

  void free_all() {
    for (int32_t& holder : holder_) {
      if (holder == kNobody) continue;
      emit(ActionKind::kFree, holder);
      is_ready_[static_cast<size_t>(holder)] = false;
      holder = kNobody;
    }
  }

  const ScheduleParameters& parameters_;
  const LayerBuckets buckets_;
  const std::vector<Action> in_;
  std::vector<Action> out_;
  std::vector<int32_t> weight_buffers_;  // by bucket
  std::vector<int32_t> holder_;          // by buffer
  std::vector<bool> is_ready_;           // by bucket
  std::vector<Use> uses_;                // of weights, in order
  size_t next_use_ = 0;
  std::vector<int32_t> ahead_;  // buckets of the layers that are prefetched now
};

}  // namespace

LayerBuckets::LayerBuckets(const ScheduleParameters& parameters, int64_t stage)
    : parameters_(parameters) {
  if (parameters.bucket_first_layers.empty()) return;
  const auto index = static_cast<size_t>(stage);
  const std::vector<int64_t>& first_layers = parameters.bucket_first_layers[index];
  const std::vector<int64_t>& last_layers = parameters.bucket_last_layers[index];
  if (first_layers.empty()) return;
  if (!parameters.persistent_buckets.empty()) persistent_ = parameters.persistent_buckets[index];
  const auto none = static_cast<int32_t>(first_layers.size()) - (persistent_ >= 0 ? 1 : 0);
  int32_t bucket = none;
  for (const std::vector<int64_t>& layers : parameters.layers[index]) {
    for (const int64_t layer : layers) {
      if (bucket > 0 && first_layers[static_cast<size_t>(bucket - 1)] == layer) --bucket;
      if (of_layer_.size() <= static_cast<size_t>(layer)) {
        of_layer_.resize(static_cast<size_t>(layer) + 1, kNobody);
      }
      const bool is_in = bucket < none && layer <= last_layers[static_cast<size_t>(bucket)];
      of_layer_[static_cast<size_t>(layer)] = is_in ? bucket : kNobody;
    }
  }
}

// What is put off to a kWeight adds nothing to the embedding.
LayerBuckets::Used LayerBuckets::used_by(int64_t layer, ActionKind kind) const {
  const std::vector<int64_t>& tied = parameters_.tied_layers;
  const bool is_tied = std::find(tied.begin(), tied.end(), layer) != tied.end();
  return {bucket_of(layer), is_tied && kind != ActionKind::kWeight ? table() : kNobody,
          persistent_};
}

int32_t LayerBuckets::table() const {
  return parameters_.table_persists ? persistent_ : bucket_of(0);
}

// The backward of an embedding adds to rows of the gradient and does not read the weight.
LayerBuckets::Used LayerBuckets::weights(const Action& action) const {
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute: break;
    case ActionKind::kBackward:
    case ActionKind::kWeight:
      if (action.layer == 0) return kNone;
      break;
    default: return kNone;
  }
  return used_by(action.layer, action.kind);
}

LayerBuckets::Used LayerBuckets::gradients(const Action& action) const {
  if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kWeight) return kNone;
  return used_by(action.layer, action.kind);
}

std::vector<Action> place_shard_gathers(std::vector<Action> actions,
                                        const ScheduleParameters& parameters, int64_t stage) {
  if (parameters.weight_buffers.empty()) return actions;
  return ShardWriter(std::move(actions), parameters, stage).write();
}

}  // namespace smp::schedule
