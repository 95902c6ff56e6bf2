#include "smp/planner/runpage/planned_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "smp/plan/base/errors.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/runinfo/trace_file.h"
#include "time/step_simulation.h"

namespace smp::runpage {
namespace {

int64_t planned_ns(double seconds) { return std::llround(seconds * 1e9); }

// Writes one stage's slices.
class PlannedStage {
 public:
  PlannedStage(const Plan& plan, const time::SimulatedStep& step, const mesh::Mesh& mesh,
               int64_t stage)
      : plan_(plan),
        step_(step),
        mesh_(mesh),
        layout_(layout::rank_layout(plan, mesh.rank_of({.pipeline = stage}))),
        ends_(layout::chunk_ends(plan, layout_)),
        actions_(step.schedule.actions[static_cast<size_t>(stage)]),
        played_(step.played.stages[static_cast<size_t>(stage)]) {
    trace_.rank = layout_.rank;
  }

  runinfo::RankTrace write() {
    runinfo::TraceSlice whole;
    whole.kind = runinfo::SliceKind::kStep;
    whole.end_ns = planned_ns(played_.sums.end());
    add(whole);
    for (size_t i = 0; i < actions_.size(); ++i) {
      runinfo::TraceSlice slice;
      slice.action = actions_[i];
      if (step_.is_condensed) slice.action.layer = -1;  // a pass is no layer
      slice.begin_ns = planned_ns(played_.actions[i].begin_s);
      slice.end_ns = planned_ns(played_.actions[i].end_s);
      add(slice);
      add_call(actions_[i], played_.calls[i]);
    }
    return std::move(trace_);
  }

 private:
  void add(const runinfo::TraceSlice& slice) {
    trace_.slices.push_back(slice);
    trace_.slices.back().step = 1;
  }

  // A message or a collective, with its size as calls count it: an all_gather starts from a part of
  // what it makes.
  void add_call(const schedule::Action& action, const time::Played& played) {
    const int64_t shard = layout::state_share(plan_).shards;
    switch (action.kind) {
      case schedule::ActionKind::kSend:
        return add_message(action, mesh::CollectiveOp::kSend, played);
      case schedule::ActionKind::kReceive:
        return add_message(action, mesh::CollectiveOp::kRecv, played);
      case schedule::ActionKind::kReduce:
        if (shard == 1) {
          return add_collective(mesh::CollectiveOp::kAllReduce, mesh::Axis::kData, "data.gradients",
                                gradient_bytes(action.bucket), played);
        }
        return add_collective(mesh::CollectiveOp::kReduceScatter, mesh::Axis::kShard,
                              "data.gradients", gradient_bytes(action.bucket), played);
      case schedule::ActionKind::kReduceReplicas:
        return add_collective(mesh::CollectiveOp::kAllReduce, mesh::Axis::kReplica,
                              "data.gradients", gradient_bytes(action.bucket) / shard, played);
      case schedule::ActionKind::kGather:
        return add_collective(mesh::CollectiveOp::kAllGather, mesh::Axis::kShard, "shard.weights",
                              elements_of(action.bucket) * bytes_of(compute_dtype(plan_)) / shard,
                              played);
      default: return;
    }
  }

  void add_message(const schedule::Action& action, mesh::CollectiveOp op,
                   const time::Played& played) {
    const bool is_tied = action.payload != schedule::Payload::kActivation &&
                         action.payload != schedule::Payload::kGradient;
    runinfo::TraceSlice slice = call_slice(op, is_tied ? mesh::Axis::kTied : mesh::Axis::kPipeline,
                                           message_label(action.payload), played);
    slice.bytes = message_bytes(action);
    slice.members = static_cast<int32_t>(is_tied ? 2 : plan_.degrees.pipeline);
    slice.peer = static_cast<int32_t>(mesh_.rank_of({.pipeline = action.peer}));
    add(slice);
  }

  void add_collective(mesh::CollectiveOp op, mesh::Axis axis, std::string_view label, int64_t bytes,
                      const time::Played& played) {
    const auto members = mesh_.group(layout_.rank, axis).size();
    if (members < 2) return;
    runinfo::TraceSlice slice = call_slice(op, axis, label, played);
    slice.bytes = bytes;
    slice.members = static_cast<int32_t>(members);
    add(slice);
  }

  static runinfo::TraceSlice call_slice(mesh::CollectiveOp op, mesh::Axis axis,
                                        std::string_view label, const time::Played& played) {
    runinfo::TraceSlice slice;
    slice.kind = runinfo::SliceKind::kCall;
    slice.op = op;
    slice.axis = axis;
    slice.begin_ns = planned_ns(played.begin_s);
    slice.end_ns = planned_ns(played.end_s);
    std::memcpy(slice.label.data(), label.data(), std::min(label.size(), slice.label.size() - 1));
    return slice;
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

  int64_t gradient_bytes(int64_t bucket) const {
    const bool wide = plan_.job.training.accumulate_gradients_in_fp32.value_or(true);
    const DType dtype =
        wide && bytes_of(compute_dtype(plan_)) < 4 ? DType::kF32 : compute_dtype(plan_);
    return elements_of(bucket) * bytes_of(dtype);
  }
  int64_t elements_of(int64_t bucket) const {
    return layout_.buckets.at(static_cast<size_t>(bucket)).size();
  }

  const Plan& plan_;
  const time::SimulatedStep& step_;
  const mesh::Mesh& mesh_;
  const layout::RankLayout layout_;
  const std::vector<layout::ChunkEnds> ends_;
  const std::vector<schedule::Action>& actions_;
  const time::PlayedStage& played_;
  runinfo::RankTrace trace_;
};

}  // namespace

std::vector<runinfo::RankTrace> planned_trace(const Plan& plan) {
  const time::SimulatedStep step = time::simulate_step(plan, time::PlayedDetail::kActions);
  if (step.played.seconds <= 0) return {};
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  std::vector<runinfo::RankTrace> traces;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    traces.push_back(PlannedStage(plan, step, mesh, stage).write());
  }
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
  const int64_t slices = time::played_actions(plan);
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
