#include "time/pipeline_time.h"

#include <algorithm>
#include <cstddef>

#include "smp/plan/base/check.h"

namespace smp::time {

std::vector<PipelineEvent> passes_of(const schedule::Schedule& schedule, const PlayedStep& step,
                                     int64_t head_layer) {
  using schedule::ActionKind;
  std::vector<PipelineEvent> events;
  for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    const size_t first = events.size();
    for (size_t i = 0; i < schedule.actions[stage].size(); ++i) {
      const schedule::Action& action = schedule.actions[stage][i];
      const bool of_backward = action.kind == ActionKind::kBackward ||
                               action.kind == ActionKind::kRecompute ||
                               (action.kind == ActionKind::kWeight && action.layer == head_layer);
      if (!of_backward && action.kind != ActionKind::kForward &&
          action.kind != ActionKind::kWeight) {
        continue;
      }
      const Played& played = step.stages[stage].actions[i];
      const PipelineEvent event{static_cast<int64_t>(stage),
                                action.chunk,
                                action.microbatch,
                                of_backward ? ActionKind::kBackward : action.kind,
                                played.begin_s,
                                played.end_s};
      if (events.size() > first && events.back().is_same_pass(event)) {
        events.back().end_s = event.end_s;
      } else {
        events.push_back(event);
      }
    }
  }
  return events;
}

PipelineTime pipeline_time(const PlayedStep& step) {
  PipelineTime time;
  for (const PlayedStage& stage : step.stages) {
    time.makespan_s = std::max(time.makespan_s, stage.last_gradient_s);
  }
  for (const PlayedStage& stage : step.stages) {
    time.idle_s.push_back(time.makespan_s - stage.sums.computing);
  }
  return time;
}

schedule::Schedule condensed_schedule(const schedule::ScheduleShape& shape) {
  schedule::ScheduleParameters parameters;
  parameters.shape = shape;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    auto& chunks = parameters.layers.emplace_back();
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      chunks.push_back({schedule::position_of_chunk(shape, {stage, chunk})});
    }
  }
  return schedule::make_schedule(parameters);
}

StepActionSeconds condensed_seconds(const PipelineCosts& costs,
                                    const schedule::ScheduleShape& shape) {
  SMP_CHECK_EQ(static_cast<int64_t>(costs.size()), shape.stages);
  StepActionSeconds seconds;
  seconds.layers.resize(static_cast<size_t>(shape.stages * shape.chunks()));
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    StageActionSeconds& own = seconds.stages.emplace_back();
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      const ChunkCost& cost = costs[static_cast<size_t>(stage)][static_cast<size_t>(chunk)];
      seconds.layers[static_cast<size_t>(schedule::position_of_chunk(shape, {stage, chunk}))] = {
          .forward = cost.forward_s, .backward = cost.backward_s, .weight = cost.weight_s};
      own.messages.push_back({cost.send_activation_s, cost.send_gradient_s});
    }
  }
  return seconds;
}

PipelineTime simulate_pipeline(const PipelineCosts& costs, const schedule::ScheduleShape& shape,
                               PlayedDetail detail) {
  const schedule::Schedule schedule = condensed_schedule(shape);
  const PlayedStep step = play_step(schedule, condensed_seconds(costs, shape), detail);
  PipelineTime time = pipeline_time(step);
  if (detail == PlayedDetail::kActions) time.events = passes_of(schedule, step, -1);
  return time;
}

}  // namespace smp::time
