#include "smp/planner/time_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "accelerator_layers.h"
#include "link_model.h"
#include "pipeline_time.h"
#include "smp/plan/check.h"
#include "smp/plan/layers.h"
#include "smp/plan/layout.h"
#include "smp/plan/traffic.h"
#include "smp/planner/memory_model.h"

namespace smp {
namespace {

int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

double flops_per_s(const Plan& plan) {
  const ClusterSpec& cluster = plan.job.cluster;
  switch (*plan.job.training.precision) {
    case Precision::kFp32: return cluster.fp32_flops_per_s * cluster.matmul_efficiency;
    // Twice the width, half the lanes.
    case Precision::kFp64: return cluster.fp32_flops_per_s * cluster.matmul_efficiency / 2;
    case Precision::kBf16:
    case Precision::kFp16: return cluster.half_flops_per_s * cluster.matmul_efficiency;
    case Precision::kFp8: return cluster.fp8_flops_per_s * cluster.matmul_efficiency;
  }
  check_failed(__FILE__, __LINE__, "unknown precision");
}

// One microbatch of one layer: its matmuls, then what is not a matmul as one pass of writing and
// one of reading over everything that is kept (and the same again for the gradients).
struct LayerTime {
  double forward_s = 0;
  double backward_s = 0;
  double weight_s = 0;  // of the backward, the weights' gradients: a forward's matmuls again
};

LayerTime layer_time(const Plan& plan, const LayerSpec& layer) {
  const ModelSpec& model = plan.job.model;
  const LayerCall call{*plan.job.training.micro_batch, plan.job.training.sequence_length,
                       plan.degrees.tensor, 0, compute_dtype(plan)};
  const LayerFlops flops = flops_of(model, layer, call);
  const LayerMemory kept = accelerator_memory_of(model, layer, call, false);
  const double touched =
      over(2.0 * static_cast<double>(kept.saved_bytes), plan.job.cluster.memory_bytes_per_s);
  LayerTime time;
  time.forward_s = over(flops.forward, flops_per_s(plan)) + touched;
  time.backward_s = over(flops.backward, flops_per_s(plan)) + 2 * touched;
  time.weight_s = over(flops.forward, flops_per_s(plan));
  if (is_block(layer) && plan.job.parallel.activation_checkpointing.value_or(false)) {
    time.backward_s += time.forward_s;  // recompute
  }
  return time;
}

// Reading and writing of one AdamW update: each state read and written, the gradient read.
double optimizer_s(const Plan& plan, const RankLayout& layout) {
  const BytesPerParameter bytes = bytes_per_parameter(*plan.job.training.precision);
  const int64_t each =
      2 * (bytes.weight + bytes.optimizer() + bytes.gradient_copy) + bytes.gradient;
  return over(static_cast<double>(each * layout.optimizer_elements),
              plan.job.cluster.memory_bytes_per_s);
}

// What the messages of one rank cost in one step, by what they delay.
struct MessageTimes {
  double tensor_forward_s = 0;
  double tensor_backward_s = 0;
  double send_activation_s = 0;  // per microbatch
  double send_gradient_s = 0;
  double reduce_s = 0;  // one reduction of all gradients
  double gather_s = 0;  // one gather of all weights
  double end_s = 0;     // tied weights, norms: after the backward, nothing hides them
};

MessageTimes message_times(const Plan& plan, const Mesh& mesh, int64_t rank) {
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t copies = kv_copies(plan.job.model, plan.degrees.tensor);
  const double m = static_cast<double>(*plan.job.training.microbatches);
  MessageTimes times;
  for (const Traffic& row : step_traffic(plan, rank)) {
    if (row.op == CollectiveOp::kRecv) continue;  // the sender's row has its time
    const std::vector<int64_t> ranks = mesh.group(rank, row.axis, copies);
    const double seconds =
        seconds_of(row, placement_of(ranks, cluster.processes_per_host), cluster);
    const std::string_view label = row.label;
    if (label == "tensor.forward" || label == "tensor.loss") {
      times.tensor_forward_s += seconds / m;
    } else if (label == "tensor.backward" || label == "tensor.kv_gradients") {
      times.tensor_backward_s += seconds / m;
    } else if (label == "pipeline.activations") {
      times.send_activation_s += seconds / m;
    } else if (label == "pipeline.gradients") {
      times.send_gradient_s += seconds / m;
    } else if (label == "data.gradients") {
      times.reduce_s += seconds;
    } else if (label == "shard.weights") {
      times.gather_s += seconds;
    } else {
      times.end_s += seconds;
    }
  }
  return times;
}

// One stage: what a microbatch costs, and what comes after the last one.
struct StageTime {
  std::vector<ChunkCost> chunks;
  double compute_s = 0;   // per microbatch, forward and backward
  double tensor_s = 0;    // per microbatch
  double sharding_s = 0;  // per microbatch, not hidden
  double offload_s = 0;   // per microbatch, not hidden
  double after_s = 0;     // reductions and gathers that nothing hides
  double optimizer_s = 0;
};

// A stage's costs by chunk: computing as its layers take it, messages as many for each.
std::vector<ChunkCost> chunk_costs(const Plan& plan, const RankLayout& layout,
                                   const std::vector<LayerTime>& layer_times,
                                   const ChunkCost& stage) {
  std::vector<double> shares;
  double sum = 0;
  auto layer = layout.layers.begin();
  for (const int64_t count : layout.chunk_layers) {
    double& share = shares.emplace_back();
    for (int64_t i = 0; i < count; ++i, ++layer) {
      const LayerTime& time = layer_times[static_cast<size_t>(layer->index)];
      share += time.forward_s + time.backward_s;
    }
    sum += share;
  }
  std::vector<ChunkCost> chunks;
  const double messages = static_cast<double>(schedule_shape(plan).chunks());
  for (const double share : shares) {
    const double part = over(share, sum);
    chunks.push_back({.forward_s = part * stage.forward_s,
                      .backward_s = part * stage.backward_s,
                      .weight_s = part * stage.weight_s,
                      .send_activation_s = stage.send_activation_s / messages,
                      .send_gradient_s = stage.send_gradient_s / messages});
  }
  return chunks;
}

StageTime stage_time(const Plan& plan, const Mesh& mesh, int64_t stage,
                     const std::vector<LayerTime>& layer_times) {
  const int64_t rank = mesh.rank_of({.pipeline = stage});
  const RankLayout layout = rank_layout(plan, rank);
  const MessageTimes messages = message_times(plan, mesh, rank);
  double forward = 0;
  double backward = 0;
  double weight = 0;  // of the backward, what the schedule puts off
  int64_t blocks = 0;
  const bool puts_off = puts_weights_off(*plan.job.parallel.pipeline);
  for (const LayerSpec& layer : layout.layers) {
    forward += layer_times[static_cast<size_t>(layer.index)].forward_s;
    backward += layer_times[static_cast<size_t>(layer.index)].backward_s;
    if (puts_off && layer.kind != LayerKind::kHead) {
      weight += layer_times[static_cast<size_t>(layer.index)].weight_s;
    }
    blocks += is_block(layer) ? 1 : 0;
  }

  StageTime time;
  time.compute_s = forward + backward;
  time.tensor_s = messages.tensor_forward_s + messages.tensor_backward_s;
  if (plan.job.parallel.activation_checkpointing.value_or(false)) {
    // The recomputed forward sends again what its forward sent.
    time.tensor_s += messages.tensor_forward_s;
    backward += messages.tensor_forward_s;
  }
  forward += messages.tensor_forward_s;
  backward += messages.tensor_backward_s;

  // Sharded parameters are gathered layer by layer in each forward and each backward, beside the
  // computing; sharded gradients are reduced in each backward.
  const Sharding sharding = *plan.job.parallel.sharding;
  const bool shards_weights = sharding == Sharding::kParameters;
  const double beside_forward = shards_weights ? messages.gather_s : 0;
  const double beside_backward =
      beside_forward + (sharding >= Sharding::kGradients ? messages.reduce_s : 0);
  const double wait_forward = std::max(0.0, beside_forward - forward);
  const double wait_backward = std::max(0.0, beside_backward - backward);
  time.sharding_s = wait_forward + wait_backward;
  forward += wait_forward;
  backward += wait_backward;

  if (plan.job.parallel.offload_activations.value_or(false)) {
    const TrainingSpec& training = plan.job.training;
    const double bytes =
        static_cast<double>(blocks * *training.micro_batch * training.sequence_length *
                            plan.job.model.hidden_size * bytes_of(compute_dtype(plan)));
    const double transfer = over(bytes, plan.job.cluster.host_link_bytes_per_s);
    const double out = std::max(0.0, transfer - forward);
    const double back = std::max(0.0, transfer - backward);
    time.offload_s = out + back;
    forward += out;
    backward += back;
  }

  // Gradients kept whole are reduced bucket by bucket during the last backward.
  double after = messages.end_s;
  if (sharding < Sharding::kGradients) {
    const double last_bucket =
        messages.reduce_s / static_cast<double>(std::max<size_t>(1, layout.buckets.size()));
    after += std::max(last_bucket, messages.reduce_s - backward);
  }
  if (!shards_weights) after += messages.gather_s;
  time.after_s = after;
  time.optimizer_s = optimizer_s(plan, layout);
  time.chunks = chunk_costs(plan, layout, layer_times,
                            {.forward_s = forward,
                             .backward_s = backward - weight,
                             .weight_s = weight,
                             .send_activation_s = messages.send_activation_s,
                             .send_gradient_s = messages.send_gradient_s});
  return time;
}

std::vector<LayerTime> layer_times_of(const Plan& plan) {
  std::vector<LayerTime> times;
  std::optional<LayerTime> block;
  for (const LayerSpec& layer : layers_of(plan.job.model)) {
    if (is_block(layer) && !block) block = layer_time(plan, layer);
    times.push_back(is_block(layer) ? *block : layer_time(plan, layer));
  }
  return times;
}

// Stages of one class take the same time: as many blocks, the same ends of the model, and
// neighbours equally near.
using StageClass = std::tuple<int64_t, bool, bool, bool, bool>;

StageClass class_of(const Plan& plan, const Mesh& mesh, int64_t stage) {
  const int64_t last = plan.degrees.pipeline - 1;
  const auto host_of = [&](int64_t of) {
    return mesh.rank_of({.pipeline = of}) / plan.job.cluster.processes_per_host;
  };
  const std::vector<int64_t> blocks = blocks_per_stage(
      plan.job.model.num_layers, plan.degrees.pipeline, plan.job.parallel.partition);
  return {blocks[static_cast<size_t>(stage)], stage == 0, stage == last,
          stage > 0 && host_of(stage - 1) == host_of(stage),
          stage < last && host_of(stage + 1) == host_of(stage)};
}

}  // namespace

TimeModel::TimeModel(const Plan& plan) : pipeline_(condensed_schedule(schedule_shape(plan))) {}

TimePrediction predict_time(const Plan& plan) { return TimeModel(plan).predict(plan); }

TimePrediction TimeModel::predict(const Plan& plan) const {
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const std::vector<LayerTime> layer_times = layer_times_of(plan);
  std::vector<StageTime> stages;
  PipelineCosts costs;
  std::map<StageClass, StageTime> classes;
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    const StageClass kind = class_of(plan, mesh, stage);
    auto known = classes.find(kind);
    if (known == classes.end()) {
      const StageTime time = stage_time(plan, mesh, stage, layer_times);
      known = classes.emplace(kind, time).first;
    }
    stages.push_back(known->second);
    costs.push_back(stages.back().chunks);
  }
  const int64_t microbatches = *plan.job.training.microbatches;
  const PipelineTime pipeline = simulate_pipeline(costs, pipeline_);

  double after = 0;
  double optimizer = 0;
  size_t busiest = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    after = std::max(after, stages[i].after_s);
    optimizer = std::max(optimizer, stages[i].optimizer_s);
    if (pipeline.idle_s[i] < pipeline.idle_s[busiest]) busiest = i;
  }

  TimePrediction time;
  const double m = static_cast<double>(microbatches);
  time.compute_ns = ns(m * stages[busiest].compute_s);
  time.tensor_ns = ns(m * stages[busiest].tensor_s);
  time.offload_ns = ns(m * stages[busiest].offload_s);
  time.sharding_ns = ns(m * stages[busiest].sharding_s + after);
  time.bubble_ns = ns(pipeline.idle_s[busiest]);
  time.optimizer_ns = ns(optimizer);
  time.step_ns = time.compute_ns + time.tensor_ns + time.offload_ns + time.sharding_ns +
                 time.bubble_ns + time.optimizer_ns;
  time.bubble_ppm = pipeline.makespan_s > 0
                        ? std::llround(pipeline.idle_s[busiest] / pipeline.makespan_s * 1e6)
                        : 0;
  for (const StageTime& stage : stages) {
    time.stage_busy_ns.push_back(ns(m * stage.compute_s + stage.optimizer_s));
  }
  return time;
}

}  // namespace smp
