#include "time/step_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "choice/resolve.h"
#include "cost/in_engine.h"
#include "cost/stage_holds.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "time/action_seconds.h"
#include "time/pipeline_time.h"
#include "time/stage_seconds.h"
#include "time/step_messages.h"

namespace smp::time {
namespace {

// Of no cluster that anybody would train on.
constexpr double kLongestStepS = 1e8;

int64_t ns(double seconds) {
  if (!(seconds <= kLongestStepS)) {
    throw ConfigError(fmt::format(
        "a step would take {:.3g} s, more than three years: look at the rates and latencies of "
        "the cluster and at the batch",
        seconds));
  }
  return std::llround(seconds * 1e9);
}

// Everything that the stages' costs are made of.
struct Pricing {
  Pricing(const Plan& plan, const cost::LayerCosts& of_layers)
      : job(plan.job),
        choice(choice::choice_of(plan)),
        costs(of_layers),
        bytes(costs.bytes),
        layers(costs.seconds) {}

  const JobSpec& job;
  choice::LayoutChoice choice;
  const cost::LayerCosts& costs;
  const cost::LayerBytes& bytes;
  const cost::LayerSeconds& layers;
};

// A stage's seconds by chunk, in proportion to what the chunk's layers take; forward and backward
// apart where some layers are frozen.
std::vector<ChunkCost> chunk_costs(const Plan& plan, const layout::StageLayers& held,
                                   const Pricing& pricing, const StageSeconds& stage) {
  struct Share {
    double forward = 0, backward = 0;
  };
  const bool frozen = !plan.job.training.frozen.empty();
  std::vector<Share> shares;
  Share sum;
  auto layer = held.layers.begin();
  for (const int64_t count : held.chunk_layers) {
    Share& share = shares.emplace_back();
    for (int64_t i = 0; i < count; ++i, ++layer) {
      const cost::CallSeconds& call = pricing.layers.of(*layer);
      const double both = call.forward() + call.backward();
      share.forward += frozen ? call.forward() : both;
      share.backward += frozen ? call.backward() : both;
    }
    sum.forward += share.forward;
    sum.backward += share.backward;
  }
  const double weight =
      schedule::defers_weight_gradients(pricing.choice.schedule) ? stage.weight : 0;
  // Messages that computing waits for are in the stage's own seconds.
  const double send = waits_for_sends(plan.job) ? 0 : stage_send_s(plan.job, pricing.choice);
  std::vector<ChunkCost> chunks;
  for (const Share& share : shares) {
    const double forward = sum.forward > 0 ? share.forward / sum.forward : 0;
    const double backward = sum.backward > 0 ? share.backward / sum.backward : 0;
    chunks.push_back({.forward_s = forward * stage.forward,
                      .backward_s = backward * (stage.backward - weight),
                      .weight_s = backward * weight,
                      .send_activation_s = send,
                      .send_gradient_s = send});
  }
  return chunks;
}

struct StageTime {
  std::vector<ChunkCost> chunks;
  StageSeconds seconds;
  StepMessages after;
};

// The kinds of a stage's layers, chunk by chunk: stages alike in them take the same time.
using StageClass = std::vector<std::vector<size_t>>;

StageClass class_of(const layout::StageLayers& held, const cost::LayerKinds& kinds) {
  StageClass chunks;
  auto layer = held.layers.begin();
  for (const int64_t count : held.chunk_layers) {
    std::vector<size_t>& chunk = chunks.emplace_back();
    for (int64_t i = 0; i < count; ++i) chunk.push_back(kinds.of(*layer++));
  }
  return chunks;
}

std::vector<StageTime> stage_times(const Plan& plan, const Pricing& pricing) {
  std::vector<StageTime> stages;
  std::map<StageClass, StageTime> classes;
  const std::vector<layout::StageLayers> layers = layout::layers_by_stage(plan);
  for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
    const layout::StageLayers& held = layers[static_cast<size_t>(stage)];
    const StageClass kind = class_of(held, *pricing.bytes.kinds);
    auto known = classes.find(kind);
    if (known == classes.end()) {
      const cost::StageHolds holds = cost::stage_holds(*pricing.bytes.kinds, held);
      const cost::StageParameters parameters = cost::parameters_of(pricing.bytes, holds);
      StageTime time;
      time.seconds =
          stage_seconds(plan.job, pricing.choice, pricing.bytes, pricing.layers, holds, parameters);
      time.chunks = chunk_costs(plan, held, pricing, time.seconds);
      time.after = step_messages(plan.job, pricing.choice, parameters, time.seconds.forward,
                                 time.seconds.backward);
      known = classes.insert_or_assign(kind, time).first;
    }
    stages.push_back(known->second);
  }
  return stages;
}

double part(const StageSeconds& stage, TimePart which) {
  return stage.parts[static_cast<size_t>(which)];
}

// Where our engine's own actions say where the time goes, of the stage that waits least for others.
TimePrediction sum_of_actions(const Plan& plan, const Pricing& pricing,
                              const std::vector<layout::StageLayers>& layers,
                              const PlayedStep& step) {
  size_t busiest = 0;
  std::vector<double> inside;  // messages inside the layers' calls
  const auto m = static_cast<double>(*plan.job.training.microbatches);
  double last_gradient = 0;
  for (size_t i = 0; i < step.stages.size(); ++i) {
    if (step.stages[i].sums.messages < step.stages[busiest].sums.messages) busiest = i;
    last_gradient = std::max(last_gradient, step.stages[i].last_gradient_s);
    double& of_stage = inside.emplace_back(0);
    for (const model::LayerSpec& layer : layers[i].layers) {
      const cost::CallSeconds& call = pricing.layers.of(layer);
      of_stage += m * (call.tensor_forward + call.tensor_backward + call.context_forward +
                       call.context_backward + call.expert_forward + call.expert_backward);
    }
  }
  const PlayedSums& sums = step.stages[busiest].sums;
  TimePrediction time;
  time.step_ns = ns(step.seconds);
  time.tensor_ns = ns(inside[busiest]);
  time.compute_ns = ns(sums.computing) - time.tensor_ns;
  time.offload_ns = ns(sums.offloading);
  time.sharding_ns = ns(sums.exposed + sums.slowed);
  time.optimizer_ns = ns(sums.updating);
  time.bubble_ns = time.step_ns - time.compute_ns - time.tensor_ns - time.offload_ns -
                   time.sharding_ns - time.optimizer_ns;
  time.bubble_ppm = last_gradient > 0 ? std::llround(sums.messages / last_gradient * 1e6) : 0;
  for (size_t i = 0; i < step.stages.size(); ++i) {
    const PlayedSums& of = step.stages[i].sums;
    time.stage_busy_ns.push_back(ns(of.computing - inside[i] + of.updating));
  }
  return time;
}

// Of a framework whose actions are not known: the passes are played, and what follows them is
// added.
TimePrediction sum_of_passes(const Plan& plan, const std::vector<StageTime>& stages,
                             const PipelineTime& pipeline) {
  // What follows the last backward is over when its slowest stage is done.
  double messages = 0;
  double offload = 0;
  double optimizer = 0;
  size_t busiest = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    messages = std::max(messages, stages[i].after.reduce_s + stages[i].after.shard_s);
    offload = std::max(offload, stages[i].after.offload_s);
    optimizer = std::max(optimizer, stages[i].after.optimizer_s);
    if (pipeline.idle_s[i] < pipeline.idle_s[busiest]) busiest = i;
  }

  const StageSeconds& stage = stages[busiest].seconds;
  const auto m = static_cast<double>(*plan.job.training.microbatches);
  const auto computing = [](const StageSeconds& of) {
    return part(of, TimePart::kMatmul) + part(of, TimePart::kMemoryBound) +
           part(of, TimePart::kLaunch) + part(of, TimePart::kRecompute);
  };
  TimePrediction time;
  time.compute_ns = ns(m * computing(stage));
  time.tensor_ns = ns(m * (part(stage, TimePart::kTensor) + part(stage, TimePart::kContext) +
                           part(stage, TimePart::kExpert)));
  time.offload_ns = ns(m * part(stage, TimePart::kOffload) + offload);
  time.sharding_ns = ns(m * part(stage, TimePart::kSharding) + messages);
  time.bubble_ns = ns(pipeline.idle_s[busiest] + m * part(stage, TimePart::kPipeline));
  time.optimizer_ns = ns(optimizer);
  time.step_ns = time.compute_ns + time.tensor_ns + time.offload_ns + time.sharding_ns +
                 time.bubble_ns + time.optimizer_ns;
  time.bubble_ppm = pipeline.makespan_s > 0
                        ? std::llround(pipeline.idle_s[busiest] / pipeline.makespan_s * 1e6)
                        : 0;
  for (const StageTime& of : stages) {
    time.stage_busy_ns.push_back(ns(m * computing(of.seconds) + of.after.optimizer_s));
  }
  return time;
}

}  // namespace

SimulatedStep simulate_step(const Plan& plan, PlayedDetail detail) {
  return simulate_step(plan, cost::layer_costs(plan.job, choice::choice_of(plan)), detail);
}

SimulatedStep simulate_step(const Plan& plan, const cost::LayerCosts& costs, PlayedDetail detail) {
  const Pricing pricing(plan, costs);
  SimulatedStep step;
  if (cost::is_of_engine(plan.job)) {
    const schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
    const std::vector<layout::StageLayers> layers = layout::layers_by_stage(plan);
    step.schedule = schedule::make_schedule(parameters);
    step.head_layer = parameters.head_layer;
    step.played =
        play_step(step.schedule,
                  action_seconds(plan, pricing.choice, pricing.costs, parameters, layers), detail);
    step.time = sum_of_actions(plan, pricing, layers, step.played);
    return step;
  }
  const std::vector<StageTime> stages = stage_times(plan, pricing);
  PipelineCosts of_chunks;
  for (const StageTime& stage : stages) of_chunks.push_back(stage.chunks);
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  step.schedule = condensed_schedule(shape);
  step.is_condensed = true;
  step.played = play_step(step.schedule, condensed_seconds(of_chunks, shape), detail);
  step.time = sum_of_passes(plan, stages, pipeline_time(step.played));
  return step;
}

int64_t played_actions(const Plan& plan) {
  const schedule::Schedule schedule =
      cost::is_of_engine(plan.job) ? schedule::make_schedule(layout::schedule_parameters(plan))
                                   : condensed_schedule(layout::schedule_shape(plan));
  int64_t count = 0;
  for (const auto& actions : schedule.actions) count += static_cast<int64_t>(actions.size());
  return count;
}

TimePrediction predict_time(const Plan& plan) {
  return simulate_step(plan, PlayedDetail::kSums).time;
}

}  // namespace smp::time
