#include "smp/planner/runpage/planned_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "choice/resolve.h"
#include "cost/layer_parameters.h"
#include "links/link_model.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/runinfo/trace_file.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/time/pipeline_timeline.h"
#include "time/pipeline_time.h"
#include "time/stage_seconds.h"
#include "time/step_messages.h"

namespace smp::runpage {
namespace {

// The pass of which an action is a part: kind, microbatch and chunk.
using PassKey = std::tuple<schedule::ActionKind, int64_t, int64_t>;

int64_t planned_ns(double seconds) { return std::llround(seconds * 1e9); }

// Writes one stage's slices.
class PlannedStage {
 public:
  PlannedStage(const Plan& plan, const cost::LayerSeconds& seconds,
               const schedule::ScheduleParameters& parameters,
               const std::vector<schedule::Action>& actions, const time::StepMessages& after,
               int64_t stage)
      : plan_(plan),
        seconds_(seconds),
        parameters_(parameters),
        actions_(actions),
        after_(after),
        mesh_(plan.degrees, plan.job.parallel.placement_strategy),
        layout_(layout::rank_layout(plan, mesh_.rank_of({.pipeline = stage}))),
        ends_(layout::chunk_ends(plan, layout_)) {
    trace_.rank = layout_.rank;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (const auto pass = pass_of(actions[i])) {
        shares_[*pass] += share_of(actions[i]);
        tail_ = i + 1;
      }
    }
    for (size_t i = tail_; i < actions.size(); ++i) ++in_tail_[actions[i].kind];
  }

  void add_pass(const time::TimelineEvent& event) {
    passes_[{event.kind, event.microbatch, event.chunk}] = {event.start_ns, event.end_ns, 0};
  }

  // Up to the step's end of all ranks; returns when this one is ready for it.
  int64_t begin_step(const time::ChunkCost& send_costs) {
    runinfo::TraceSlice step;
    step.kind = runinfo::SliceKind::kStep;
    add_slice(step);
    for (; next_ < actions_.size() && actions_[next_].kind != schedule::ActionKind::kStep; ++next_)
      add(actions_[next_], send_costs);
    return now_ + (in_tail_.count(schedule::ActionKind::kReduceWait) == 0
                       ? planned_ns(after_.reduce_s)
                       : 0);
  }
  // The rest; `agreed_ns` is when the last rank is ready.
  void end_step(int64_t agreed_ns, const time::ChunkCost& send_costs) {
    for (; next_ < actions_.size(); ++next_) {
      if (actions_[next_].kind == schedule::ActionKind::kStep) {
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
    schedule::Payload payload = schedule::Payload::kNone;
  };
  const std::vector<Message>& sends() const { return sends_; }
  const std::vector<Message>& receives() const { return receives_; }
  runinfo::RankTrace& trace() { return trace_; }

 private:
  struct TimedPass {
    int64_t start_ns = 0, end_ns = 0;
    double done = 0;  // of its actions' shares
  };

  std::optional<PassKey> pass_of(const schedule::Action& action) const {
    schedule::ActionKind kind = action.kind;
    switch (kind) {
      case schedule::ActionKind::kForward:
      case schedule::ActionKind::kBackward: break;
      case schedule::ActionKind::kRecompute: kind = schedule::ActionKind::kBackward; break;
      // The head's weight gradients come with its backward.
      case schedule::ActionKind::kWeight:
        if (action.layer == parameters_.head_layer) kind = schedule::ActionKind::kBackward;
        break;
      default: return std::nullopt;
    }
    return PassKey{kind, action.microbatch, action.chunk};
  }

  // Seconds of the action alone; a little for each, so that no pass has none.
  double share_of(const schedule::Action& action) const {
    constexpr double kLeastS = 1e-12;
    const cost::CallSeconds& call = seconds_.of_kind[seconds_.kinds->of_layer(action.layer)];
    const double weight =
        schedule::defers_weight_gradients(parameters_.shape.kind) ? call.matmul_backward / 2 : 0;
    const double seconds = action.kind == schedule::ActionKind::kForward  ? call.forward()
                           : action.kind == schedule::ActionKind::kWeight ? weight
                           : action.kind == schedule::ActionKind::kRecompute
                               ? (call.recompute > 0 ? call.recompute : call.forward())
                               : call.backward() - call.recompute - weight;
    return std::max(seconds, kLeastS);
  }

  size_t add_slice(const runinfo::TraceSlice& slice) {
    trace_.slices.push_back(slice);
    trace_.slices.back().step = 1;
    return trace_.slices.size() - 1;
  }

  void add_action(const schedule::Action& action, int64_t begin, int64_t end) {
    runinfo::TraceSlice slice;
    slice.action = action;
    slice.begin_ns = begin;
    slice.end_ns = end;
    add_slice(slice);
  }

  size_t add_call(mesh::CollectiveOp op, mesh::Axis axis, std::string_view label, int64_t begin,
                  int64_t end, int64_t bytes, int64_t members) {
    runinfo::TraceSlice slice;
    slice.kind = runinfo::SliceKind::kCall;
    slice.op = op;
    slice.axis = axis;
    slice.begin_ns = begin;
    slice.end_ns = end;
    slice.bytes = bytes;
    slice.members = static_cast<int32_t>(members);
    std::memcpy(slice.label.data(), label.data(), std::min(label.size(), slice.label.size() - 1));
    return add_slice(slice);
  }

  void add(const schedule::Action& action, const time::ChunkCost& send_costs) {
    if (const auto pass = pass_of(action)) return add_part(action, *pass);
    const bool is_tail = next_ >= tail_;
    int64_t end = now_;
    switch (action.kind) {
      case schedule::ActionKind::kReceiveWait: end = std::max(now_, start_of_pass(action)); break;
      case schedule::ActionKind::kReduceWait:
        if (is_tail) end += part_of(after_.reduce_s, action.kind);
        break;
      case schedule::ActionKind::kUpdate:
        end += part_of(after_.optimizer_s + after_.offload_s, action.kind);
        break;
      case schedule::ActionKind::kGather:
        if (is_tail) end += part_of(after_.shard_s, action.kind);
        break;
      default: break;
    }
    add_action(action, now_, end);
    if (action.kind == schedule::ActionKind::kSend) send(action, send_costs);
    if (action.kind == schedule::ActionKind::kReceive) receive(action);
    if (action.kind == schedule::ActionKind::kReduce) reduce(action.bucket);
    if (action.kind == schedule::ActionKind::kReduceReplicas) reduce_replicas(action.bucket);
    if (action.kind == schedule::ActionKind::kGather) gather(action.bucket);
    now_ = end;
  }

  void add_part(const schedule::Action& action, const PassKey& key) {
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
  int64_t start_of_pass(const schedule::Action& action) const {
    const bool forward = action.payload == schedule::Payload::kActivation;
    if (!forward && action.payload != schedule::Payload::kGradient) return now_;
    const auto pass =
        passes_.find({forward ? schedule::ActionKind::kForward : schedule::ActionKind::kBackward,
                      action.microbatch, action.chunk});
    return pass == passes_.end() ? now_ : pass->second.start_ns;
  }

  // Of what all actions of the kind after the last pass share.
  int64_t part_of(double seconds, schedule::ActionKind kind) {
    const auto found = in_tail_.find(kind);
    return found == in_tail_.end() ? 0 : planned_ns(seconds / static_cast<double>(found->second));
  }

  int64_t message_bytes(const schedule::Action& action) const {
    const bool is_gradient = action.payload == schedule::Payload::kGradient;
    const bool is_receive = action.kind == schedule::ActionKind::kReceive;
    if (!is_gradient && action.payload != schedule::Payload::kActivation) {
      const layout::PlacedParameter& table =
          layout_.tied_copy ? *layout_.tied_copy : layout_.parameters.front();
      return table.box.size() * bytes_of(compute_dtype(plan_));
    }
    const layout::ChunkEnds& ends = ends_.at(static_cast<size_t>(action.chunk));
    if (is_gradient) return model::gradient_bytes_of(is_receive ? ends.hands : ends.takes);
    return bytes_of(is_receive ? ends.takes : ends.hands);
  }

  static std::string_view message_label(schedule::Payload payload) {
    switch (payload) {
      case schedule::Payload::kActivation: return "pipeline.activations";
      case schedule::Payload::kGradient: return "pipeline.gradients";
      case schedule::Payload::kTiedGradient: return "tied.gradients";
      default: return "tied.weights";
    }
  }
  static mesh::Axis message_axis(schedule::Payload payload) {
    return payload == schedule::Payload::kActivation || payload == schedule::Payload::kGradient
               ? mesh::Axis::kPipeline
               : mesh::Axis::kTied;
  }
  int64_t message_members(schedule::Payload payload) const {
    return message_axis(payload) == mesh::Axis::kTied ? 2 : plan_.degrees.pipeline;
  }

  void send(const schedule::Action& action, const time::ChunkCost& costs) {
    const double seconds = action.payload == schedule::Payload::kActivation
                               ? costs.send_activation_s
                           : action.payload == schedule::Payload::kGradient ? costs.send_gradient_s
                                                                            : 0;
    sends_.push_back({add_call(mesh::CollectiveOp::kSend, message_axis(action.payload),
                               message_label(action.payload), now_, now_ + planned_ns(seconds),
                               message_bytes(action), message_members(action.payload)),
                      action.peer, action.payload});
  }
  void receive(const schedule::Action& action) {
    receives_.push_back({add_call(mesh::CollectiveOp::kRecv, message_axis(action.payload),
                                  message_label(action.payload), now_, now_, message_bytes(action),
                                  message_members(action.payload)),
                         action.peer, action.payload});
  }

  // One call of the group along an axis after the other.
  void call(mesh::CollectiveOp op, mesh::Axis axis, std::string_view label, double bytes) {
    std::vector<int64_t> ranks = mesh_.group(layout_.rank, axis);
    if (ranks.size() < 2) return;
    const ClusterSpec& cluster = plan_.job.cluster;
    const links::Placement placement = links::placement_of(ranks, cluster.processes_per_host);
    const links::CollectiveBackend how = links::exchange_of(plan_.job, axis);
    const double seconds = op == mesh::CollectiveOp::kAllReduce
                               ? links::all_reduce_s(bytes, placement, cluster, how)
                           : op == mesh::CollectiveOp::kAllGather
                               ? links::all_gather_s(bytes, placement, cluster, how)
                               : links::reduce_scatter_s(bytes, placement, cluster, how);
    int64_t& free_at = free_at_[axis];
    const int64_t begin = std::max(now_, free_at);
    free_at = begin + planned_ns(seconds);
    const auto members = static_cast<int64_t>(ranks.size());
    // As calls count: an all_gather starts from a part of what it makes.
    const int64_t given =
        std::llround(bytes) / (op == mesh::CollectiveOp::kAllGather ? members : 1);
    add_call(op, axis, label, begin, free_at, given, members);
  }
  double gradient_bytes(int64_t bucket) const {
    const bool wide = plan_.job.training.accumulate_gradients_in_fp32.value_or(true);
    const DType dtype =
        wide && bytes_of(compute_dtype(plan_)) < 4 ? DType::kF32 : compute_dtype(plan_);
    return static_cast<double>(elements_of(bucket) * bytes_of(dtype));
  }
  void reduce(int64_t bucket) {
    const double bytes = gradient_bytes(bucket);
    if (plan_.degrees.shard == 1 || *plan_.job.parallel.sharding == Sharding::kNone)
      return call(mesh::CollectiveOp::kAllReduce, mesh::Axis::kData, "data.gradients", bytes);
    call(mesh::CollectiveOp::kReduceScatter, mesh::Axis::kShard, "data.gradients", bytes);
  }
  void reduce_replicas(int64_t bucket) {
    call(mesh::CollectiveOp::kAllReduce, mesh::Axis::kReplica, "data.gradients",
         gradient_bytes(bucket) / static_cast<double>(plan_.degrees.shard));
  }
  void gather(int64_t bucket) {
    call(mesh::CollectiveOp::kAllGather, mesh::Axis::kShard, "shard.weights",
         static_cast<double>(elements_of(bucket) * bytes_of(compute_dtype(plan_))));
  }
  int64_t elements_of(int64_t bucket) const {
    return layout_.buckets.at(static_cast<size_t>(bucket)).size();
  }

  const Plan& plan_;
  const cost::LayerSeconds& seconds_;
  const schedule::ScheduleParameters& parameters_;
  const std::vector<schedule::Action>& actions_;
  const time::StepMessages& after_;
  const mesh::Mesh mesh_;
  const layout::RankLayout layout_;
  const std::vector<layout::ChunkEnds> ends_;
  std::map<PassKey, double> shares_;  // of all its actions
  std::map<PassKey, TimedPass> passes_;
  size_t tail_ = 0;                                  // the first action after the last pass
  std::map<schedule::ActionKind, int64_t> in_tail_;  // how many there are of each kind
  std::map<mesh::Axis, int64_t> free_at_;            // when the group's last call is done
  std::vector<Message> sends_, receives_;
  runinfo::RankTrace trace_;
  size_t next_ = 0;
  int64_t now_ = 0;
};

// A message has arrived when it was sent and is wanted.
void join_messages(std::vector<PlannedStage>& stages, const mesh::Mesh& mesh) {
  std::map<std::tuple<size_t, int64_t, mesh::Axis>, std::deque<int64_t>> arrivals;
  const auto axis_of = [](schedule::Payload payload) {
    return payload == schedule::Payload::kActivation || payload == schedule::Payload::kGradient
               ? mesh::Axis::kPipeline
               : mesh::Axis::kTied;
  };
  for (size_t from = 0; from < stages.size(); ++from) {
    for (const PlannedStage::Message& message : stages[from].sends()) {
      runinfo::TraceSlice& slice = stages[from].trace().slices[message.slice];
      slice.peer = static_cast<int32_t>(mesh.rank_of({.pipeline = message.peer}));
      arrivals[{from, message.peer, axis_of(message.payload)}].push_back(slice.end_ns);
    }
  }
  for (size_t to = 0; to < stages.size(); ++to) {
    for (const PlannedStage::Message& message : stages[to].receives()) {
      runinfo::TraceSlice& slice = stages[to].trace().slices[message.slice];
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

std::vector<runinfo::RankTrace> planned_trace(const Plan& plan) {
  const std::vector<time::TimelineEvent> events = time::pipeline_timeline(plan);
  if (events.empty()) return {};
  const schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
  const schedule::Schedule schedule = schedule::make_schedule(parameters);
  const cost::LayerSeconds seconds = cost::layer_seconds(plan.job, choice::choice_of(plan));
  const std::vector<time::StepMessages> after = time::messages_after_passes(plan);
  const time::PipelineCosts costs = time::pipeline_costs(plan);
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);

  std::vector<PlannedStage> stages;
  stages.reserve(after.size());
  for (size_t i = 0; i < after.size(); ++i)
    stages.emplace_back(plan, seconds, parameters, schedule.actions[i], after[i],
                        static_cast<int64_t>(i));
  for (const time::TimelineEvent& event : events)
    stages[static_cast<size_t>(event.stage)].add_pass(event);
  int64_t agreed_ns = 0;
  for (size_t i = 0; i < stages.size(); ++i)
    agreed_ns = std::max(agreed_ns, stages[i].begin_step(costs[i].front()));
  for (size_t i = 0; i < stages.size(); ++i) stages[i].end_step(agreed_ns, costs[i].front());
  join_messages(stages, mesh);
  std::vector<runinfo::RankTrace> traces;
  for (PlannedStage& stage : stages) traces.push_back(std::move(stage.trace()));
  return traces;
}

namespace {

// The peers of the same tensor and data coordinates.
runinfo::RankTrace of_rank(runinfo::RankTrace trace, const mesh::Coord& coord,
                           const mesh::Mesh& mesh) {
  trace.rank = mesh.rank_of(coord);
  for (runinfo::TraceSlice& slice : trace.slices) {
    if (slice.kind != runinfo::SliceKind::kCall || slice.peer < 0) continue;
    mesh::Coord peer = coord;
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
  for (const std::vector<schedule::Action>& actions :
       schedule::make_schedule(layout::schedule_parameters(plan)).actions)
    slices += static_cast<int64_t>(actions.size());
  const int64_t all = by_rank ? slices * ranks_of_stage : slices;
  if (all > kMostPlannedSlices)
    throw ConfigError(fmt::format(
        "the schedule has {} actions{}, more than the {} that a viewer shows: {}", all,
        by_rank ? " on all ranks" : "", kMostPlannedSlices,
        by_rank && slices <= kMostPlannedSlices ? fmt::format("leave --ranks out, for {}", slices)
                                                : "write fewer training.microbatches"));
  const std::vector<runinfo::RankTrace> traces = planned_trace(plan);
  if (traces.empty())
    throw ConfigError(
        "the time of an action is unknown because the cluster has no rates: set "
        "cluster.fp32_flops_per_s and memory_bytes_per_s, or use a cluster of configs/clusters");
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  runinfo::TraceWriter writer(out, true, true, plan.degrees.world());
  for (size_t stage = 0; stage < traces.size(); ++stage) {
    const int64_t first = traces[stage].rank;
    if (!by_rank) {
      writer.add({runinfo::kPlannedPids + first, first,
                  fmt::format("planned: stage {} ({} rank{})", stage, ranks_of_stage,
                              ranks_of_stage == 1 ? "" : "s"),
                  "", 2 * first},
                 {}, traces[stage]);
      continue;
    }
    for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
      const mesh::Coord coord = mesh.coord_of(rank);
      if (coord.pipeline != static_cast<int64_t>(stage)) continue;
      writer.add({runinfo::kPlannedPids + rank, rank,
                  "planned: " + runinfo::trace_name(rank, coord, plan.degrees), "", 2 * rank},
                 {}, of_rank(traces[stage], coord, mesh));
    }
  }
  writer.finish({{"job", plan.job.name}, {"steps", "1"}});
}

}  // namespace smp::runpage
