#include "smp/planner/planned_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "layer_parameters.h"
#include "link_model.h"
#include "pipeline_time.h"
#include "resolve.h"
#include "smp/plan/check.h"
#include "smp/plan/chunk_ends.h"
#include "smp/plan/errors.h"
#include "smp/plan/layer_tensors.h"
#include "smp/plan/layout.h"
#include "smp/plan/rank_groups.h"
#include "smp/plan/schedule_of_plan.h"
#include "smp/plan/trace_file.h"
#include "smp/planner/layer_seconds.h"
#include "smp/planner/pipeline_timeline.h"
#include "stage_seconds.h"
#include "step_messages.h"

namespace smp {
namespace {

// The pass of which an action is a part: kind, microbatch and chunk.
using PassKey = std::tuple<ActionKind, int64_t, int64_t>;

int64_t planned_ns(double seconds) { return std::llround(seconds * 1e9); }

// Writes one stage's slices.
class PlannedStage {
 public:
  PlannedStage(const Plan& plan, const LayerSeconds& seconds, const ScheduleParameters& parameters,
               const std::vector<Action>& actions, const StepMessages& after, int64_t stage)
      : plan_(plan),
        seconds_(seconds),
        parameters_(parameters),
        actions_(actions),
        after_(after),
        mesh_(plan.degrees, plan.job.parallel.placement_strategy),
        layout_(rank_layout(plan, mesh_.rank_of({.pipeline = stage}))),
        ends_(chunk_ends(plan, layout_)) {
    trace_.rank = layout_.rank;
    for (const LayerSpec& layer : layout_.layers) kinds_[layer.index] = layer.kind;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (const auto pass = pass_of(actions[i])) {
        shares_[*pass] += share_of(actions[i]);
        tail_ = i + 1;
      }
    }
    for (size_t i = tail_; i < actions.size(); ++i) ++in_tail_[actions[i].kind];
  }

  void add_pass(const TimelineEvent& event) {
    passes_[{event.kind, event.microbatch, event.chunk}] = {event.start_ns, event.end_ns, 0};
  }

  // Up to the step's end of all ranks; returns when this one is ready for it.
  int64_t begin_step(const ChunkCost& send_costs) {
    TraceSlice step;
    step.kind = SliceKind::kStep;
    add_slice(step);
    for (; next_ < actions_.size() && actions_[next_].kind != ActionKind::kStep; ++next_)
      add(actions_[next_], send_costs);
    return now_ + (in_tail_.count(ActionKind::kReduceWait) == 0 ? planned_ns(after_.reduce_s) : 0);
  }
  // The rest; `agreed_ns` is when the last rank is ready.
  void end_step(int64_t agreed_ns, const ChunkCost& send_costs) {
    for (; next_ < actions_.size(); ++next_) {
      if (actions_[next_].kind == ActionKind::kStep) {
        const int64_t begin = now_;
        now_ = std::max(now_, agreed_ns);
        add_action(actions_[next_], begin, now_);
      } else {
        add(actions_[next_], send_costs);
      }
    }
    trace_.slices.front().end_ns = now_;
  }

  // Messages, in the order in which they were started: the slice and whom it goes to or comes from.
  struct Message {
    size_t slice = 0;
    int64_t peer = 0;  // stage
    Payload payload = Payload::kNone;
  };
  const std::vector<Message>& sends() const { return sends_; }
  const std::vector<Message>& receives() const { return receives_; }
  RankTrace& trace() { return trace_; }

 private:
  struct TimedPass {
    int64_t start_ns = 0, end_ns = 0;
    double done = 0;  // of its actions' shares
  };

  std::optional<PassKey> pass_of(const Action& action) const {
    ActionKind kind = action.kind;
    switch (kind) {
      case ActionKind::kForward:
      case ActionKind::kBackward: break;
      case ActionKind::kRecompute: kind = ActionKind::kBackward; break;
      // The head's weight gradients come with its backward.
      case ActionKind::kWeight:
        if (action.layer == parameters_.head_layer) kind = ActionKind::kBackward;
        break;
      default: return std::nullopt;
    }
    return PassKey{kind, action.microbatch, action.chunk};
  }

  const CallSeconds& call_of(int64_t layer) const {
    const LayerKind kind = kinds_.at(layer);
    return kind == LayerKind::kEmbedding    ? seconds_.embedding
           : makes_loss(kind)               ? seconds_.head
           : kind == LayerKind::kMoeBlock   ? seconds_.moe_block
           : kind == LayerKind::kCrossBlock ? seconds_.cross_block
                                            : seconds_.block;
  }

  // Seconds of the action alone; a little for each, so that no pass has none.
  double share_of(const Action& action) const {
    constexpr double kLeastS = 1e-12;
    const CallSeconds& call = call_of(action.layer);
    const double weight = puts_weights_off(parameters_.shape.kind) ? call.matmul_backward / 2 : 0;
    const double seconds = action.kind == ActionKind::kForward  ? call.forward()
                           : action.kind == ActionKind::kWeight ? weight
                           : action.kind == ActionKind::kRecompute
                               ? (call.recompute > 0 ? call.recompute : call.forward())
                               : call.backward() - call.recompute - weight;
    return std::max(seconds, kLeastS);
  }

  size_t add_slice(const TraceSlice& slice) {
    trace_.slices.push_back(slice);
    trace_.slices.back().step = 1;
    return trace_.slices.size() - 1;
  }

  void add_action(const Action& action, int64_t begin, int64_t end) {
    TraceSlice slice;
    slice.action = action;
    slice.begin_ns = begin;
    slice.end_ns = end;
    add_slice(slice);
  }

  size_t add_call(CollectiveOp op, Axis axis, std::string_view label, int64_t begin, int64_t end,
                  int64_t bytes, int64_t members) {
    TraceSlice slice;
    slice.kind = SliceKind::kCall;
    slice.op = op;
    slice.axis = axis;
    slice.begin_ns = begin;
    slice.end_ns = end;
    slice.bytes = bytes;
    slice.members = static_cast<int32_t>(members);
    std::memcpy(slice.label.data(), label.data(), std::min(label.size(), slice.label.size() - 1));
    return add_slice(slice);
  }

  void add(const Action& action, const ChunkCost& send_costs) {
    if (const auto pass = pass_of(action)) return add_part(action, *pass);
    const bool is_tail = next_ >= tail_;
    int64_t end = now_;
    switch (action.kind) {
      case ActionKind::kReceiveWait: end = std::max(now_, start_of_pass(action)); break;
      case ActionKind::kReduceWait:
        if (is_tail) end += part_of(after_.reduce_s, action.kind);
        break;
      case ActionKind::kUpdate:
        end += part_of(after_.optimizer_s + after_.offload_s, action.kind);
        break;
      case ActionKind::kGather:
        if (is_tail) end += part_of(after_.shard_s, action.kind);
        break;
      default: break;
    }
    add_action(action, now_, end);
    if (action.kind == ActionKind::kSend) send(action, send_costs);
    if (action.kind == ActionKind::kReceive) receive(action);
    if (action.kind == ActionKind::kReduce) reduce(action.bucket);
    if (action.kind == ActionKind::kGather) gather(action.bucket);
    now_ = end;
  }

  void add_part(const Action& action, const PassKey& key) {
    TimedPass& pass = passes_.at(key);
    const double whole = shares_.at(key);
    const auto at = [&](double done) -> int64_t {
      return pass.start_ns + std::llround(std::min(1.0, done / whole) *
                                          static_cast<double>(pass.end_ns - pass.start_ns));
    };
    const int64_t begin = std::max(now_, at(pass.done));
    pass.done += share_of(action);
    now_ = std::max(begin, at(pass.done));
    add_action(action, begin, now_);
  }

  // A receive's wait ends when the pass that wants its data begins.
  int64_t start_of_pass(const Action& action) const {
    const bool forward = action.payload == Payload::kActivation;
    if (!forward && action.payload != Payload::kGradient) return now_;
    const auto pass = passes_.find(
        {forward ? ActionKind::kForward : ActionKind::kBackward, action.microbatch, action.chunk});
    return pass == passes_.end() ? now_ : pass->second.start_ns;
  }

  // Of what all actions of the kind after the last pass share.
  int64_t part_of(double seconds, ActionKind kind) {
    const auto found = in_tail_.find(kind);
    return found == in_tail_.end() ? 0 : planned_ns(seconds / static_cast<double>(found->second));
  }

  int64_t message_bytes(const Action& action) const {
    const bool is_gradient = action.payload == Payload::kGradient;
    const bool is_receive = action.kind == ActionKind::kReceive;
    if (!is_gradient && action.payload != Payload::kActivation) {
      const PlacedParameter& table =
          layout_.tied_copy ? *layout_.tied_copy : layout_.parameters.front();
      return table.box.size() * bytes_of(compute_dtype(plan_));
    }
    const ChunkEnds& ends = ends_.at(static_cast<size_t>(action.chunk));
    if (is_gradient) return gradient_bytes_of(is_receive ? ends.hands : ends.takes);
    return bytes_of(is_receive ? ends.takes : ends.hands);
  }

  static std::string_view message_label(Payload payload) {
    switch (payload) {
      case Payload::kActivation: return "pipeline.activations";
      case Payload::kGradient: return "pipeline.gradients";
      case Payload::kTiedGradient: return "tied.gradients";
      default: return "tied.weights";
    }
  }
  static Axis message_axis(Payload payload) {
    return payload == Payload::kActivation || payload == Payload::kGradient ? Axis::kPipeline
                                                                            : Axis::kTied;
  }
  int64_t message_members(Payload payload) const {
    return message_axis(payload) == Axis::kTied ? 2 : plan_.degrees.pipeline;
  }

  void send(const Action& action, const ChunkCost& costs) {
    const double seconds = action.payload == Payload::kActivation ? costs.send_activation_s
                           : action.payload == Payload::kGradient ? costs.send_gradient_s
                                                                  : 0;
    sends_.push_back({add_call(CollectiveOp::kSend, message_axis(action.payload),
                               message_label(action.payload), now_, now_ + planned_ns(seconds),
                               message_bytes(action), message_members(action.payload)),
                      action.peer, action.payload});
  }
  void receive(const Action& action) {
    receives_.push_back(
        {add_call(CollectiveOp::kRecv, message_axis(action.payload), message_label(action.payload),
                  now_, now_, message_bytes(action), message_members(action.payload)),
         action.peer, action.payload});
  }

  // One call of the group along an axis after the other.
  void call(CollectiveOp op, Axis axis, std::string_view label, double bytes) {
    std::vector<int64_t> ranks = mesh_.group(layout_.rank, axis);
    if (ranks.size() < 2) return;
    const ClusterSpec& cluster = plan_.job.cluster;
    const Placement placement = placement_of(ranks, cluster.processes_per_host);
    const CollectiveBackend how = exchange_of(plan_.job, axis);
    const double seconds =
        op == CollectiveOp::kAllReduce   ? all_reduce_s(bytes, placement, cluster, how)
        : op == CollectiveOp::kAllGather ? all_gather_s(bytes, placement, cluster, how)
                                         : reduce_scatter_s(bytes, placement, cluster, how);
    int64_t& free_at = free_at_[axis];
    const int64_t begin = std::max(now_, free_at);
    free_at = begin + planned_ns(seconds);
    const auto members = static_cast<int64_t>(ranks.size());
    // As calls count: an all_gather starts from a part of what it makes.
    const int64_t given = std::llround(bytes) / (op == CollectiveOp::kAllGather ? members : 1);
    add_call(op, axis, label, begin, free_at, given, members);
  }
  void reduce(int64_t bucket) {
    const bool wide = plan_.job.training.accumulate_gradients_in_fp32.value_or(true);
    const DType dtype =
        wide && bytes_of(compute_dtype(plan_)) < 4 ? DType::kF32 : compute_dtype(plan_);
    const auto bytes = static_cast<double>(elements_of(bucket) * bytes_of(dtype));
    if (plan_.degrees.shard == 1 || *plan_.job.parallel.sharding == Sharding::kNone)
      return call(CollectiveOp::kAllReduce, Axis::kData, "data.gradients", bytes);
    call(CollectiveOp::kReduceScatter, Axis::kShard, "data.gradients", bytes);
  }
  void gather(int64_t bucket) {
    call(CollectiveOp::kAllGather, Axis::kShard, "shard.weights",
         static_cast<double>(elements_of(bucket) * bytes_of(compute_dtype(plan_))));
  }
  int64_t elements_of(int64_t bucket) const {
    return layout_.buckets.at(static_cast<size_t>(bucket)).size();
  }

  const Plan& plan_;
  const LayerSeconds& seconds_;
  const ScheduleParameters& parameters_;
  const std::vector<Action>& actions_;
  const StepMessages& after_;
  const Mesh mesh_;
  const RankLayout layout_;
  const std::vector<ChunkEnds> ends_;
  std::map<int64_t, LayerKind> kinds_;  // by model index
  std::map<PassKey, double> shares_;    // of all its actions
  std::map<PassKey, TimedPass> passes_;
  size_t tail_ = 0;                        // the first action after the last pass
  std::map<ActionKind, int64_t> in_tail_;  // how many there are of each kind
  std::map<Axis, int64_t> free_at_;        // when the group's last call is done
  std::vector<Message> sends_, receives_;
  RankTrace trace_;
  size_t next_ = 0;
  int64_t now_ = 0;
};

// A message has arrived when it was sent and is wanted.
void join_messages(std::vector<PlannedStage>& stages, const Mesh& mesh) {
  std::map<std::tuple<size_t, int64_t, Axis>, std::deque<int64_t>> arrivals;
  const auto axis_of = [](Payload payload) {
    return payload == Payload::kActivation || payload == Payload::kGradient ? Axis::kPipeline
                                                                            : Axis::kTied;
  };
  for (size_t from = 0; from < stages.size(); ++from) {
    for (const PlannedStage::Message& message : stages[from].sends()) {
      TraceSlice& slice = stages[from].trace().slices[message.slice];
      slice.peer = static_cast<int32_t>(mesh.rank_of({.pipeline = message.peer}));
      arrivals[{from, message.peer, axis_of(message.payload)}].push_back(slice.end_ns);
    }
  }
  for (size_t to = 0; to < stages.size(); ++to) {
    for (const PlannedStage::Message& message : stages[to].receives()) {
      TraceSlice& slice = stages[to].trace().slices[message.slice];
      slice.peer = static_cast<int32_t>(mesh.rank_of({.pipeline = message.peer}));
      std::deque<int64_t>& sent = arrivals[{static_cast<size_t>(message.peer),
                                            static_cast<int64_t>(to), axis_of(message.payload)}];
      SMP_CHECK(!sent.empty());
      slice.end_ns = std::max(slice.begin_ns, sent.front());
      sent.pop_front();
    }
  }
}

}  // namespace

std::vector<RankTrace> planned_trace(const Plan& plan) {
  const std::vector<TimelineEvent> events = pipeline_timeline(plan);
  if (events.empty()) return {};
  const ScheduleParameters parameters = schedule_parameters(plan);
  const Schedule schedule = make_schedule(parameters);
  const LayerSeconds seconds = layer_seconds(plan.job, nearest_choice_of(plan));
  const std::vector<StepMessages> after = messages_after_passes(plan);
  const PipelineCosts costs = pipeline_costs(plan);
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);

  std::vector<PlannedStage> stages;
  stages.reserve(after.size());
  for (size_t i = 0; i < after.size(); ++i)
    stages.emplace_back(plan, seconds, parameters, schedule.actions[i], after[i],
                        static_cast<int64_t>(i));
  for (const TimelineEvent& event : events)
    stages[static_cast<size_t>(event.stage)].add_pass(event);
  int64_t agreed_ns = 0;
  for (size_t i = 0; i < stages.size(); ++i)
    agreed_ns = std::max(agreed_ns, stages[i].begin_step(costs[i].front()));
  for (size_t i = 0; i < stages.size(); ++i) stages[i].end_step(agreed_ns, costs[i].front());
  join_messages(stages, mesh);
  std::vector<RankTrace> traces;
  for (PlannedStage& stage : stages) traces.push_back(std::move(stage.trace()));
  return traces;
}

namespace {

// The peers of the same tensor and data coordinates.
RankTrace of_rank(RankTrace trace, const Coord& coord, const Mesh& mesh) {
  trace.rank = mesh.rank_of(coord);
  for (TraceSlice& slice : trace.slices) {
    if (slice.kind != SliceKind::kCall || slice.peer < 0) continue;
    Coord peer = coord;
    peer.pipeline = mesh.coord_of(slice.peer).pipeline;
    slice.peer = static_cast<int32_t>(mesh.rank_of(peer));
  }
  return trace;
}

}  // namespace

void write_planned_trace(const Plan& plan, bool by_rank,
                         const std::function<void(std::string_view)>& out) {
  const int64_t ranks_of_stage = plan.degrees.world() / plan.degrees.pipeline;
  int64_t slices = 0;
  for (const std::vector<Action>& actions : make_schedule(schedule_parameters(plan)).actions)
    slices += static_cast<int64_t>(actions.size());
  const int64_t all = by_rank ? slices * ranks_of_stage : slices;
  if (all > kMostPlannedSlices)
    throw ConfigError(fmt::format("the schedule has {} actions{}, and a viewer takes {}: {}", all,
                                  by_rank ? " on all ranks" : "", kMostPlannedSlices,
                                  by_rank && slices <= kMostPlannedSlices
                                      ? fmt::format("without --ranks there are {}", slices)
                                      : "give fewer training.microbatches"));
  const std::vector<RankTrace> traces = planned_trace(plan);
  if (traces.empty())
    throw ConfigError(
        "nothing says how long an action takes: the cluster has no rates; set "
        "cluster.fp32_flops_per_s and memory_bytes_per_s, or take a cluster of configs/clusters");
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  TraceWriter writer(out, true, true, plan.degrees.world());
  for (size_t stage = 0; stage < traces.size(); ++stage) {
    const int64_t first = traces[stage].rank;
    if (!by_rank) {
      writer.add({kPlannedPids + first, first,
                  fmt::format("planned: stage {} ({} rank{})", stage, ranks_of_stage,
                              ranks_of_stage == 1 ? "" : "s"),
                  "", 2 * first},
                 {}, traces[stage]);
      continue;
    }
    for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
      const Coord coord = mesh.coord_of(rank);
      if (coord.pipeline != static_cast<int64_t>(stage)) continue;
      writer.add({kPlannedPids + rank, rank, "planned: " + trace_name(rank, coord, plan.degrees),
                  "", 2 * rank},
                 {}, of_rank(traces[stage], coord, mesh));
    }
  }
  writer.finish({{"job", plan.job.name}, {"steps", "1"}});
}

}  // namespace smp
