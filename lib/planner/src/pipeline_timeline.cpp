#include "smp/planner/pipeline_timeline.h"

#include <algorithm>
#include <cmath>

#include "pipeline_time.h"
#include "smp/plan/schedule_of_plan.h"

namespace smp {

std::vector<TimelineEvent> pipeline_timeline(const Plan& plan) {
  const PipelineTime time = simulate_pipeline(
      pipeline_costs(plan), pipeline_passes(schedule_shape(plan)), PipelineEvents::kAll);
  std::vector<TimelineEvent> events;
  if (time.makespan_s <= 0) return events;
  events.reserve(time.events.size());
  const auto ns = [](double seconds) { return std::llround(seconds * 1e9); };
  for (const PipelineEvent& event : time.events) {
    events.push_back({event.stage, event.chunk, event.microbatch, event.kind, ns(event.begin_s),
                      ns(event.end_s)});
  }
  std::stable_sort(
      events.begin(), events.end(),
      [](const TimelineEvent& a, const TimelineEvent& b) { return a.stage < b.stage; });
  return events;
}

}  // namespace smp
