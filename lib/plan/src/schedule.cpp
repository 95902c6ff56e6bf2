#include "smp/plan/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "smp/plan/check.h"
#include "smp/plan/layout.h"
#include "smp/plan/plan.h"

namespace smp {
namespace {

// Forward or backward of one microbatch through the whole stage.
struct Pass {
  bool forward = true;
  int64_t microbatch = 0;
};

int64_t live_bound(const ScheduleParameters& parameters, int64_t stage) {
  const auto stages = static_cast<int64_t>(parameters.layers.size());
  int64_t live = parameters.microbatches;
  if (parameters.kind == PipelineKind::kInterleaved) live = std::min(live, stages - stage);
  if (parameters.active_microbatches > 0) live = std::min(live, parameters.active_microbatches);
  return live;
}

// GPipe (Huang et al. 2019): all forward, then all backward; in rounds of `live` microbatches.
std::vector<Pass> simple_order(int64_t microbatches, int64_t live) {
  std::vector<Pass> order;
  for (int64_t begin = 0; begin < microbatches; begin += live) {
    const int64_t end = std::min(begin + live, microbatches);
    for (int64_t i = begin; i < end; ++i) order.push_back({true, i});
    for (int64_t i = begin; i < end; ++i) order.push_back({false, i});
  }
  return order;
}

// 1F1B (PipeDream-Flush, Narayanan et al. 2021): forward until `live` microbatches are live, then
// backward and forward in turn, so that none is kept longer than needed.
std::vector<Pass> one_forward_one_backward_order(int64_t microbatches, int64_t live) {
  std::vector<Pass> order;
  for (int64_t i = 0; i < live; ++i) order.push_back({true, i});
  for (int64_t i = 0; i < microbatches; ++i) {
    order.push_back({false, i});
    if (i + live < microbatches) order.push_back({true, i + live});
  }
  return order;
}

// Writes one stage's actions. The order of passes is given; what is decided here is when messages
// start and when they are waited for:
// - the receive of a pass starts just before the pass that precedes it computes: its transfer hides
//   behind one computation, and no more than one receive buffer exists ahead of its use;
// - a send starts as soon as its data exist, and is waited for after the next pass has computed.
// Neither order can deadlock even when a send blocks until its receive is posted; verify() proves
// it.
class StageWriter {
 public:
  StageWriter(const ScheduleParameters& parameters, int64_t stage)
      : parameters_(parameters),
        layers_(parameters.layers[static_cast<size_t>(stage)]),
        stage_(stage),
        last_stage_(static_cast<int64_t>(parameters.layers.size()) - 1),
        head_(parameters.layers.back().back()) {
    if (!parameters.bucket_first_layers.empty()) {
      buckets_ = parameters.bucket_first_layers[static_cast<size_t>(stage)];
    }
  }

  std::vector<Action> write() {
    const int64_t live = live_bound(parameters_, stage_);
    const std::vector<Pass> order =
        parameters_.kind == PipelineKind::kSimple
            ? simple_order(parameters_.microbatches, live)
            : one_forward_one_backward_order(parameters_.microbatches, live);
    // A pass computes its layers and has at most four messages to start and to wait for.
    actions_.reserve(order.size() * (layers_.size() + 4) + 5 * buckets_.size() + 8);
    start_receive(order.front());
    for (size_t i = 0; i < order.size(); ++i) {
      wait_receive(order[i]);
      if (i + 1 < order.size()) {
        start_receive(order[i + 1]);
      } else if (receives_tied_gradient()) {
        receive(ActionKind::kReceive, Payload::kTiedGradient, -1, last_stage_);
      }
      compute(order[i]);
      const std::vector<Action> sent_before = std::exchange(unfinished_sends_, {});
      start_send(order[i]);
      for (const Action& send : sent_before) finish(send);
    }
    if (parameters_.tied_across_stages && stage_ == last_stage_) {
      send(Payload::kTiedGradient, -1, 0);
    }
    for (const Action& send : std::exchange(unfinished_sends_, {})) finish(send);
    step();
    return std::move(actions_);
  }

 private:
  bool receives_tied_gradient() const { return parameters_.tied_across_stages && stage_ == 0; }
  bool has_input(const Pass& pass) const {
    return pass.forward ? stage_ > 0 : stage_ < last_stage_;
  }
  bool has_output(const Pass& pass) const {
    return pass.forward ? stage_ < last_stage_ : stage_ > 0;
  }

  void receive(ActionKind kind, Payload payload, int64_t microbatch, int64_t peer) {
    actions_.push_back({.kind = kind, .payload = payload, .microbatch = microbatch, .peer = peer});
  }

  void start_receive(const Pass& pass) {
    if (has_input(pass)) receive_input(ActionKind::kReceive, pass);
  }
  void wait_receive(const Pass& pass) {
    if (has_input(pass)) receive_input(ActionKind::kReceiveWait, pass);
  }
  void receive_input(ActionKind kind, const Pass& pass) {
    receive(kind, pass.forward ? Payload::kActivation : Payload::kGradient, pass.microbatch,
            pass.forward ? stage_ - 1 : stage_ + 1);
  }

  void start_send(const Pass& pass) {
    if (!has_output(pass)) return;
    send(pass.forward ? Payload::kActivation : Payload::kGradient, pass.microbatch,
         pass.forward ? stage_ + 1 : stage_ - 1);
  }
  void send(Payload payload, int64_t microbatch, int64_t peer) {
    actions_.push_back(
        {.kind = ActionKind::kSend, .payload = payload, .microbatch = microbatch, .peer = peer});
    unfinished_sends_.push_back(actions_.back());
  }
  void finish(Action send) {
    send.kind = ActionKind::kSendWait;
    actions_.push_back(send);
  }

  void compute(const Pass& pass) {
    if (pass.forward) {
      for (const int64_t layer : layers_) {
        actions_.push_back(
            {.kind = ActionKind::kForward, .microbatch = pass.microbatch, .layer = layer});
      }
      return;
    }
    const bool last_microbatch = pass.microbatch + 1 == parameters_.microbatches;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      actions_.push_back(
          {.kind = ActionKind::kBackward, .microbatch = pass.microbatch, .layer = *layer});
      if (last_microbatch) reduce_after(*layer);
    }
  }

  // The gradients of `layer` are complete on this rank.
  void reduce_after(int64_t layer) {
    if (layer == 0 && receives_tied_gradient()) {
      receive(ActionKind::kReceiveWait, Payload::kTiedGradient, -1, last_stage_);
    }
    const bool is_block = layer > 0 && layer < head_;
    if (parameters_.kv_replicated && is_block) {
      actions_.push_back({.kind = ActionKind::kReduceKv, .layer = layer});
    }
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b] == layer) bucket_action(ActionKind::kReduce, b);
    }
  }

  void bucket_action(ActionKind kind, size_t bucket) {
    actions_.push_back({.kind = kind, .bucket = static_cast<int64_t>(bucket)});
  }

  // Buckets are numbered from the last layers to the first; gathers run the other way, because the
  // next step needs the first layers first, and so does the sender of a tied weight.
  void step() {
    for (size_t b = 0; b < buckets_.size(); ++b) bucket_action(ActionKind::kReduceWait, b);
    actions_.push_back({.kind = ActionKind::kStep});
    const bool tied = parameters_.tied_across_stages;
    if (tied && stage_ == last_stage_) receive(ActionKind::kReceive, Payload::kTiedWeight, -1, 0);
    std::vector<size_t> gathering;
    if (parameters_.sharded) {
      for (size_t b = buckets_.size(); b-- > 0;) {
        bucket_action(ActionKind::kGather, b);
        gathering.push_back(b);
      }
    }
    if (tied && stage_ == 0) {
      if (!gathering.empty()) {  // the weight must be whole before it is sent
        bucket_action(ActionKind::kGatherWait, gathering.front());
        gathering.erase(gathering.begin());
      }
      send(Payload::kTiedWeight, -1, last_stage_);
    }
    for (const size_t b : gathering) bucket_action(ActionKind::kGatherWait, b);
    for (const Action& send : std::exchange(unfinished_sends_, {})) finish(send);
    if (tied && stage_ == last_stage_) {
      receive(ActionKind::kReceiveWait, Payload::kTiedWeight, -1, 0);
    }
  }

  const ScheduleParameters& parameters_;
  const std::vector<int64_t>& layers_;
  const int64_t stage_;
  const int64_t last_stage_;
  const int64_t head_;            // model index of the last layer
  std::vector<int64_t> buckets_;  // first layer of each
  std::vector<Action> actions_;
  std::vector<Action> unfinished_sends_;
};

}  // namespace

ScheduleParameters schedule_parameters(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  const Mesh mesh(plan.degrees, parallel.placement_strategy);
  ScheduleParameters parameters;
  SMP_CHECK(parallel.pipeline && parallel.active_microbatches && plan.job.training.microbatches);
  parameters.kind = *parallel.pipeline;
  parameters.microbatches = *plan.job.training.microbatches;
  parameters.active_microbatches = *parallel.active_microbatches;
  parameters.sharded = plan.degrees.shard > 1;
  parameters.tied_across_stages = plan.job.model.tied_embeddings && plan.degrees.pipeline > 1;
  parameters.kv_replicated = kv_copies(plan.job.model, plan.degrees.tensor) > 1;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    const RankLayout layout = rank_layout(plan, mesh.rank_of({.pipeline = stage}));
    std::vector<int64_t>& layers = parameters.layers.emplace_back();
    for (const LayerSpec& layer : layout.layers) layers.push_back(layer.index);
    std::vector<int64_t>& buckets = parameters.bucket_first_layers.emplace_back();
    if (plan.degrees.data() == 1) continue;
    for (const Bucket& bucket : layout.buckets) buckets.push_back(bucket.first_layer);
  }
  return parameters;
}

Schedule make_schedule(const ScheduleParameters& parameters) {
  SMP_CHECK(parameters.microbatches >= 1 && !parameters.layers.empty());
  for (const std::vector<int64_t>& layers : parameters.layers) SMP_CHECK(!layers.empty());
  Schedule schedule;
  schedule.stages = static_cast<int64_t>(parameters.layers.size());
  schedule.microbatches = parameters.microbatches;
  for (int64_t stage = 0; stage < schedule.stages; ++stage) {
    schedule.live_bound.push_back(live_bound(parameters, stage));
    schedule.actions.push_back(StageWriter(parameters, stage).write());
  }
  return schedule;
}

int64_t max_live_microbatches(const Schedule& schedule, int64_t stage) {
  const std::vector<Action>& actions = schedule.actions.at(static_cast<size_t>(stage));
  const auto microbatches = static_cast<size_t>(schedule.microbatches);
  std::vector<size_t> last_backward(microbatches, actions.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::kBackward) continue;
    last_backward.at(static_cast<size_t>(actions[i].microbatch)) = i;
  }
  std::vector<bool> is_live(microbatches, false);
  int64_t live = 0, most = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto microbatch = static_cast<size_t>(actions[i].microbatch);
    if (actions[i].kind == ActionKind::kForward && !is_live.at(microbatch)) {
      is_live[microbatch] = true;
      most = std::max(most, ++live);
    }
    if (actions[i].kind == ActionKind::kBackward && last_backward[microbatch] == i) --live;
  }
  return most;
}

}  // namespace smp
