#include "smp/planner/time/pipeline_timeline.h"

#include <cmath>

#include "time/step_simulation.h"

namespace smp::time {

std::vector<TimelineEvent> pipeline_timeline(const Plan& plan) {
  const SimulatedStep step = simulate_step(plan, PlayedDetail::kActions);
  std::vector<TimelineEvent> events;
  if (step.played.seconds <= 0) return events;
  const auto ns = [](double seconds) { return std::llround(seconds * 1e9); };
  for (const PipelineEvent& event : passes_of(step.schedule, step.played, step.head_layer)) {
    events.push_back({event.stage, event.chunk, event.microbatch, event.kind, ns(event.begin_s),
                      ns(event.end_s)});
  }
  return events;
}

}  // namespace smp::time
