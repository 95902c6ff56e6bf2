#include "schedule/reduction_actions.h"

#include <algorithm>
#include <utility>

#include "schedule/shard_actions.h"
#include "smp/plan/base/check.h"

namespace smp::schedule {
namespace {

class ReductionWriter {
 public:
  ReductionWriter(std::vector<Action> actions, const ScheduleParameters& parameters, int64_t stage)
      : parameters_(parameters), buckets_(parameters, stage), in_(std::move(actions)) {
    const auto index = static_cast<size_t>(stage);
    elements_ = parameters.bucket_elements[index];
    if (!parameters.gradient_buffers.empty()) buffers_ = parameters.gradient_buffers[index];
    std::vector<int64_t> layers_of(elements_.size(), 0);
    for (const std::vector<int64_t>& layers : parameters.layers[index]) {
      for (const int64_t layer : layers) {
        const int32_t bucket = buckets_.bucket_of(layer);
        if (bucket >= 0) ++layers_of[static_cast<size_t>(bucket)];
      }
    }
    for (size_t b = 0; b < elements_.size(); ++b) {
      const int64_t layers = std::max<int64_t>(1, layers_of[b]);
      of_layer_.push_back((elements_[b] + layers - 1) / layers);
    }
  }

  std::vector<Action> write() {
    out_.reserve(in_.size() + 4 * elements_.size());
    for (const Action& action : in_) {
      switch (action.kind) {
        case ActionKind::kForward:
        case ActionKind::kRecompute: start_second_halves(); break;
        case ActionKind::kBackward:
        case ActionKind::kWeight:
          start_second_halves();
          empty_buffers(action);
          computed_ += gradients_of(action);
          break;
        case ActionKind::kReduce: start(action); break;
        case ActionKind::kUpdate:
          if (parameters_.early_updates) finish_for_update(action.bucket);
          break;
        case ActionKind::kStep: finish_for_step(); break;
        default: break;
      }
      out_.push_back(action);
    }
    SMP_CHECK(in_flight_.empty());
    return std::move(out_);
  }

 private:
  struct Reduction {
    int32_t bucket = -1;
    int32_t microbatch = -1;
    bool is_last = true;       // of the step, of this bucket
    int64_t computed = 0;      // elements, when it started
    bool in_replicas = false;  // its second half is in flight
  };
  using Place = std::vector<Reduction>::iterator;

  void emit(ActionKind kind, int32_t bucket, int32_t microbatch = -1) {
    out_.push_back({.kind = kind, .microbatch = microbatch, .bucket = bucket});
  }
  int64_t elements(int32_t bucket) const { return elements_[static_cast<size_t>(bucket)]; }
  bool has_second_half(const Reduction& one) const {
    return parameters_.has_replicas && one.is_last;
  }

  // The oldest whose second half is not started yet.
  Place next_second_half() {
    return std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Reduction& one) {
      return has_second_half(one) && !one.in_replicas;
    });
  }
  Place of_bucket(int32_t bucket) {
    return std::find_if(in_flight_.begin(), in_flight_.end(),
                        [&](const Reduction& one) { return one.bucket == bucket; });
  }

  void start(const Action& action) {
    start_second_halves();
    const int64_t most = parameters_.most_reductions;
    while (most > 0 && static_cast<int64_t>(in_flight_.size()) >= most) {
      finish(in_flight_.begin()->bucket);
    }
    const bool is_last =
        action.microbatch < 0 || int64_t{action.microbatch} + 1 == parameters_.shape.microbatches;
    in_flight_.push_back({action.bucket, action.microbatch, is_last, computed_});
  }

  // Elements of gradients that the action completes: a layer's share of its bucket.
  int64_t gradients_of(const Action& action) const {
    const bool defers = defers_weight_gradients(parameters_.shape.kind);
    const int32_t bucket = buckets_.bucket_of(action.layer);
    if (bucket < 0 || (defers && action.kind == ActionKind::kBackward)) return 0;
    return of_layer_[static_cast<size_t>(bucket)];
  }

  void start_second_halves() {
    if (parameters_.has_replicas && !in_flight_.empty()) start_those_expected();
  }
  void start_those_expected() {
    for (auto one = next_second_half(); one != in_flight_.end() && is_expected_done(*one);
         one = next_second_half()) {
      finish_first_half(one);
    }
  }

  bool is_expected_done(const Reduction& one) const {
    return parameters_.reduced_per_computed * (computed_ - one.computed) >= elements(one.bucket);
  }

  void finish_first_half(Place one) {
    emit(ActionKind::kReduceWait, one->bucket, one->microbatch);
    if (!has_second_half(*one)) {
      in_flight_.erase(one);
      return;
    }
    emit(ActionKind::kReduceReplicas, one->bucket);
    one->in_replicas = true;
  }

  void finish(int32_t bucket) {
    auto one = of_bucket(bucket);
    if (one == in_flight_.end()) return;
    if (!one->in_replicas) {
      finish_first_half(one);
      one = of_bucket(bucket);
      if (one == in_flight_.end()) return;
    }
    emit(ActionKind::kReduceReplicasWait, bucket);
    in_flight_.erase(one);
  }

  void empty_buffers(const Action& action) {
    if (buffers_.empty()) return;
    for (const int32_t bucket : buckets_.gradients(action)) {
      if (bucket < 0) continue;
      const int32_t buffer = buffers_[static_cast<size_t>(bucket)];
      const auto holder =
          std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Reduction& one) {
            return !one.in_replicas && buffers_[static_cast<size_t>(one.bucket)] == buffer;
          });
      if (holder != in_flight_.end()) finish_first_half(holder);
    }
  }

  // Each update hides one more second half.
  void finish_for_update(int32_t bucket) {
    if (bucket < 0) return;
    const auto next = next_second_half();
    if (has_updated_ && next != in_flight_.end()) finish_first_half(next);
    finish(bucket);
    has_updated_ = true;
  }

  void finish_for_step() {
    if (parameters_.early_updates) return;
    while (next_second_half() != in_flight_.end()) finish_first_half(next_second_half());
    for (int32_t bucket = 0; bucket < static_cast<int32_t>(elements_.size()); ++bucket) {
      finish(bucket);
      emit(ActionKind::kGradientNorm, bucket);
    }
  }

  const ScheduleParameters& parameters_;
  const LayerBuckets buckets_;
  const std::vector<Action> in_;
  std::vector<Action> out_;
  std::vector<int64_t> elements_;  // by bucket
  std::vector<int64_t> of_layer_;  // by bucket: those of one layer, rounded up
  std::vector<int32_t> buffers_;   // by bucket; empty: gradients are whole
  int64_t computed_ = 0;           // elements of gradients, of all microbatches
  bool has_updated_ = false;
  std::vector<Reduction> in_flight_;  // the oldest first
};

}  // namespace

std::vector<Action> place_reductions(std::vector<Action> actions,
                                     const ScheduleParameters& parameters, int64_t stage) {
  if (parameters.bucket_elements.empty()) return actions;
  if (parameters.bucket_elements[static_cast<size_t>(stage)].empty()) return actions;
  return ReductionWriter(std::move(actions), parameters, stage).write();
}

}  // namespace smp::schedule
