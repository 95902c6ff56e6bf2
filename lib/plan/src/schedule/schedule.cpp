#include "smp/plan/schedule/schedule.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "schedule/offload_actions.h"
#include "schedule/receive_plan.h"
#include "schedule/reduction_actions.h"
#include "schedule/shard_actions.h"
#include "schedule/updated_gathers.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/schedule/pass_order.h"

namespace smp::schedule {
namespace {

// Writes one stage's actions. The order of passes and the starts of receives are given; the writer
// decides the rest. A send starts as soon as its data exist, and is waited for after the next pass.
// Gradients are reduced as soon as they are complete; place_reductions() adds the waits. verify()
// proves that there is no deadlock, even if a send blocks until its receive is posted.
class StageWriter {
 public:
  StageWriter(const ScheduleParameters& parameters, int64_t stage, const std::vector<Pass>& order,
              const std::vector<StartReceive>& receives)
      : parameters_(parameters),
        shape_(parameters.shape),
        chunks_(parameters.layers[static_cast<size_t>(stage)]),
        order_(order),
        receives_(receives),
        stage_(stage),
        last_stage_(shape_.stages - 1),
        neighbours_(shape_, stage),
        layer_buckets_(parameters, stage) {
    for (const std::vector<int64_t>& layers : chunks_) {
      layers_.insert(layers_.end(), layers.begin(), layers.end());
    }
    head_ = place_of_chunk(shape_, shape_.stages * shape_.chunks() - 1).stage == stage
                ? layers_.back()
                : -1;
    if (!parameters.bucket_first_layers.empty()) {
      buckets_ = parameters.bucket_first_layers[static_cast<size_t>(stage)];
    }
    bucket_layers_left_.assign(buckets_.size(), 0);
    persistent_ = layer_buckets_.persistent();
    for (const int64_t layer : layers_) {
      const int32_t bucket = layer_buckets_.bucket_of(layer);
      if (bucket >= 0) ++bucket_layers_left_[static_cast<size_t>(bucket)];
      if (persistent_ >= 0) ++bucket_layers_left_[static_cast<size_t>(persistent_)];
    }
    if (parameters.sharded && !shape_.forward_only) {
      gathers_.emplace(actions_, buckets_.size(), parameters.most_gathers, sends_tied_weight());
    }
  }

  std::vector<Action> write() {
    // A pass computes its layers and has at most four messages to start and to wait for.
    actions_.reserve(order_.size() * (layers_.size() / chunks_.size() + 4) + 6 * buckets_.size() +
                     layers_.size() + 8);
    start_receives(-1);
    const auto is_backward = [](const Pass& pass) { return pass.kind == PassKind::kBackward; };
    const auto turn = std::find_if(order_.begin(), order_.end(), is_backward) - order_.begin();
    for (size_t i = 0; i < order_.size(); ++i) {
      if (parameters_.sums_router_loads && static_cast<std::ptrdiff_t>(i) == turn) {
        actions_.push_back({.kind = ActionKind::kRouterLoads});
      }
      const Neighbour& source = neighbours_.source_of(order_[i]);
      if (source.exists) receive_input(ActionKind::kReceiveWait, order_[i], source.place.stage);
      start_receives(static_cast<int64_t>(i));
      if (i + 1 == order_.size() && receives_tied_gradient()) {
        receive(ActionKind::kReceive, Payload::kTiedGradient, last_stage_);
      }
      compute(order_[i]);
      const size_t sent_before = unfinished_sends_.size();
      send_output(order_[i]);
      finish_sends(sent_before);
    }
    if (sends_tied_gradient()) send({.payload = Payload::kTiedGradient, .peer = 0});
    finish_sends(unfinished_sends_.size());
    if (!shape_.forward_only) step();
    if (!parameters_.offloaded.empty()) add_offloads(parameters_, actions_);
    actions_.shrink_to_fit();
    return std::move(actions_);
  }

 private:
  bool trains_tied() const { return parameters_.tied_across_stages && !shape_.forward_only; }
  bool receives_tied_gradient() const { return trains_tied() && stage_ == 0; }
  bool sends_tied_gradient() const { return trains_tied() && stage_ == last_stage_; }
  bool sends_tied_weight() const { return trains_tied() && stage_ == 0; }

  void receive(ActionKind kind, Payload payload, int64_t peer) {
    actions_.push_back({.kind = kind, .payload = payload, .peer = static_cast<int32_t>(peer)});
  }

  static Payload payload_of(const Pass& pass) {
    return pass.kind == PassKind::kForward ? Payload::kActivation : Payload::kGradient;
  }

  void start_receives(int64_t before_pass) {
    for (; next_receive_ < receives_.size(); ++next_receive_) {
      const StartReceive& start = receives_[next_receive_];
      if (start.before_pass != before_pass) return;
      receive_input(ActionKind::kReceive, order_[static_cast<size_t>(start.pass)], start.peer);
    }
  }
  void receive_input(ActionKind kind, const Pass& pass, int64_t peer) {
    actions_.push_back({.kind = kind,
                        .payload = payload_of(pass),
                        .chunk = pass.chunk,
                        .microbatch = pass.microbatch,
                        .peer = static_cast<int32_t>(peer)});
  }

  void send_output(const Pass& pass) {
    const Neighbour& target = neighbours_.target_of(pass);
    if (!target.exists) return;
    send({.payload = payload_of(pass),
          .chunk = pass.chunk,
          .microbatch = pass.microbatch,
          .peer = static_cast<int32_t>(target.place.stage)});
  }
  void send(Action action) {
    action.kind = ActionKind::kSend;
    actions_.push_back(action);
    unfinished_sends_.push_back(action);
  }
  // The first ones.
  void finish_sends(size_t count) {
    const auto end = unfinished_sends_.begin() + static_cast<std::ptrdiff_t>(count);
    for (auto send = unfinished_sends_.begin(); send != end; ++send) {
      send->kind = ActionKind::kSendWait;
      actions_.push_back(*send);
    }
    unfinished_sends_.erase(unfinished_sends_.begin(), end);
  }

  void compute(const Pass& pass) {
    const std::vector<int64_t>& layers = chunks_[static_cast<size_t>(pass.chunk)];
    switch (pass.kind) {
      case PassKind::kForward:
        for (const int64_t layer : layers) {
          // The step before has started to gather them.
          const int32_t bucket = layer_buckets_.bucket_of(layer);
          if (gathers_ && bucket >= 0) gathers_->wait_for(static_cast<size_t>(bucket));
          compute(ActionKind::kForward, pass, layer);
        }
        return;
      case PassKind::kBackward:
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
          recompute(pass, layers, static_cast<size_t>(layers.rend() - layer - 1));
          compute(ActionKind::kBackward, pass, *layer);
          if (defers_weight_gradients(shape_.kind)) {
            if (*layer != parameters_.head_layer) continue;
            compute(ActionKind::kWeight, pass, *layer);
          }
          gradient_of(pass, *layer);
        }
        return;
      case PassKind::kWeight:
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
          if (*layer == parameters_.head_layer) continue;
          compute(ActionKind::kWeight, pass, *layer);
          gradient_of(pass, *layer);
        }
        return;
    }
  }
  void compute(ActionKind kind, const Pass& pass, int64_t layer) {
    actions_.push_back({.kind = kind,
                        .chunk = pass.chunk,
                        .microbatch = pass.microbatch,
                        .layer = static_cast<int32_t>(layer)});
  }

  // When the backward reaches a run of layers that share a checkpoint, it recomputes the whole run.
  void recompute(const Pass& pass, const std::vector<int64_t>& layers, size_t last) {
    if (parameters_.checkpoints.empty()) return;
    const int64_t checkpoint = checkpoint_of(parameters_, layers[last]);
    const bool is_last =
        last + 1 == layers.size() || checkpoint_of(parameters_, layers[last + 1]) != checkpoint;
    if (checkpoint < 0 || !is_last) return;
    for (size_t i = 0; i <= last; ++i) {
      if (checkpoint_of(parameters_, layers[i]) == checkpoint) {
        compute(ActionKind::kRecompute, pass, layers[i]);
      }
    }
  }

  // One microbatch's gradient of `layer` has been added. Microbatches pass a chunk in order, so the
  // last one completes it. Sharded gradients are reduced by microbatch.
  void gradient_of(const Pass& pass, int64_t layer) {
    const bool by_microbatch = !parameters_.gradient_buffers.empty();
    const bool is_last = pass.microbatch + 1 == shape_.microbatches;
    if (!is_last && !by_microbatch) return;
    if (is_last && layer == 0 && receives_tied_gradient()) {
      receive(ActionKind::kReceiveWait, Payload::kTiedGradient, last_stage_);
    }
    const bool is_block = layer > 0 && layer != head_;
    if (parameters_.kv_replicated && is_block) {
      actions_.push_back({.kind = ActionKind::kReduceKv,
                          .microbatch = by_microbatch ? pass.microbatch : -1,
                          .layer = static_cast<int32_t>(layer)});
    }
    if (buckets_.empty()) return;
    const int32_t bucket = layer_buckets_.bucket_of(layer);  // -1: no parameters of its own
    if (!by_microbatch) {
      if (bucket >= 0 && --bucket_layers_left_[static_cast<size_t>(bucket)] == 0) {
        bucket_action(ActionKind::kReduce, static_cast<size_t>(bucket));
      }
      return;
    }
    // A bucket's first layer is the last that a microbatch passes.
    if (bucket >= 0 && layer == buckets_[static_cast<size_t>(bucket)]) {
      bucket_action(ActionKind::kReduce, static_cast<size_t>(bucket), pass.microbatch);
    }
    if (!is_last || persistent_ < 0) return;
    const auto persistent = static_cast<size_t>(persistent_);
    if (--bucket_layers_left_[persistent] > 0) return;
    bucket_action(ActionKind::kReduce, persistent, pass.microbatch);
  }

  void bucket_action(ActionKind kind, size_t bucket, int32_t microbatch = -1) {
    actions_.push_back(
        {.kind = kind, .microbatch = microbatch, .bucket = static_cast<int32_t>(bucket)});
  }

  // Early updates run in the order of the reductions, so that reductions under way hide them.
  // Gathers run from the first layers to the last, because the next step and the sender of a tied
  // weight need the first layers first. Deferred updates run in the same order, each followed by
  // its gather.
  void step() {
    const bool early = parameters_.early_updates;
    for (size_t b = 0; early && b < buckets_.size(); ++b) bucket_action(ActionKind::kUpdate, b);
    if (early && buckets_.empty()) actions_.push_back({.kind = ActionKind::kUpdate});
    for (size_t b = buckets_.size(); early && gathers_ && b-- > 0;) gathers_->updated(b);
    actions_.push_back({.kind = ActionKind::kStep});
    const bool receives_tied = parameters_.tied_across_stages && stage_ == last_stage_;
    if (receives_tied) receive(ActionKind::kReceive, Payload::kTiedWeight, 0);
    if (!early) update_all();
    if (sends_tied_weight()) {
      if (gathers_) gathers_->wait_for(buckets_.size() - 1);  // it must be whole to be sent
      send({.payload = Payload::kTiedWeight, .peer = static_cast<int32_t>(last_stage_)});
    }
    finish_sends(unfinished_sends_.size());
    if (receives_tied) receive(ActionKind::kReceiveWait, Payload::kTiedWeight, 0);
  }

  void update_all() {
    if (buckets_.empty()) actions_.push_back({.kind = ActionKind::kUpdate});
    for (size_t b = buckets_.size(); b-- > 0;) {
      bucket_action(ActionKind::kUpdate, b);
      if (gathers_) gathers_->updated(b);
    }
  }

  const ScheduleParameters& parameters_;
  const ScheduleShape& shape_;
  const std::vector<std::vector<int64_t>>& chunks_;
  const std::vector<Pass>& order_;
  const std::vector<StartReceive>& receives_;
  const int64_t stage_;
  const int64_t last_stage_;
  const Neighbours neighbours_;
  std::vector<int64_t> layers_;   // of all chunks
  int64_t head_ = -1;             // model index of the last layer, where it is of this stage
  std::vector<int64_t> buckets_;  // first layer of each
  const LayerBuckets layer_buckets_;
  int32_t persistent_ = -1;  // the bucket of what stays gathered
  std::vector<int64_t> bucket_layers_left_;
  std::vector<Action> actions_;
  std::optional<UpdatedGathers> gathers_;  // where the shards of updated weights are gathered
  std::vector<Action> unfinished_sends_;
  size_t next_receive_ = 0;
};

}  // namespace

Schedule make_schedule(const ScheduleParameters& parameters) {
  const ScheduleShape& shape = parameters.shape;
  SMP_CHECK(shape.microbatches >= 1 && shape.stages >= 1);
  SMP_CHECK_EQ(static_cast<int64_t>(parameters.layers.size()), shape.stages);
  for (const auto& chunks : parameters.layers) {
    SMP_CHECK_EQ(static_cast<int64_t>(chunks.size()), shape.chunks());
    for (const std::vector<int64_t>& layers : chunks) SMP_CHECK(!layers.empty());
  }
  SMP_CHECK_EQ(parameters.bucket_elements.size(), parameters.bucket_first_layers.size());
  if (const auto why = schedule_refused(shape)) throw ConfigError("schedule: " + *why);
  SMP_CHECK(!parameters.sums_router_loads || forwards_come_first(shape));
  std::vector<std::vector<Pass>> orders;
  for (int64_t stage = 0; stage < shape.stages; ++stage) orders.push_back(pass_order(shape, stage));
  std::vector<std::vector<StartReceive>> receives = plan_receives(shape, orders);
  Schedule schedule;
  schedule.stages = shape.stages;
  schedule.microbatches = shape.microbatches;
  for (size_t stage = 0; stage < orders.size(); ++stage) {
    const auto index = static_cast<int64_t>(stage);
    schedule.live_bound.push_back(held_units(shape, index));
    std::vector<Action> actions =
        StageWriter(parameters, index, orders[stage], receives[stage]).write();
    actions = place_reductions(std::move(actions), parameters, index);
    schedule.actions.push_back(place_shard_gathers(std::move(actions), parameters, index));
    receives[stage] = {};  // a thousand stages' lists are large
  }
  return schedule;
}

int64_t max_live(const Schedule& schedule, int64_t stage) {
  const std::vector<Action>& actions = schedule.actions.at(static_cast<size_t>(stage));
  const auto slot = [&](const Action& action) {
    return static_cast<size_t>(int64_t{action.chunk} * schedule.microbatches + action.microbatch);
  };
  const auto is_pass = [](const Action& action) {
    return action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward ||
           action.kind == ActionKind::kWeight;
  };
  std::vector<size_t> last;  // pass of each microbatch in each chunk
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!is_pass(actions[i])) continue;
    if (last.size() <= slot(actions[i])) last.resize(slot(actions[i]) + 1, 0);
    last[slot(actions[i])] = i;
  }
  std::vector<bool> is_live(last.size(), false);
  int64_t live = 0, most = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.kind == ActionKind::kForward && !is_live.at(slot(action))) {
      is_live[slot(action)] = true;
      most = std::max(most, ++live);
    }
    if (is_pass(action) && last[slot(action)] == i) --live;
  }
  return most;
}

}  // namespace smp::schedule
