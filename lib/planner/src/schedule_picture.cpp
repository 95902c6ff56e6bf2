#include "smp/planner/schedule_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipeline_time.h"
#include "smp/plan/job_names.h"
#include "smp/plan/schedule.h"

namespace smp {
namespace {

constexpr size_t kCell = 4;  // characters of one forward
constexpr double kForward = 1;
constexpr double kBackward = 2;

// "F3" in one cell, "B3--" over two.
void draw(std::string& line, const PipelineEvent& event) {
  const auto begin = static_cast<size_t>(std::lround(event.begin_s)) * kCell;
  const auto end = static_cast<size_t>(std::lround(event.end_s)) * kCell;
  if (line.size() < end) line.resize(end, ' ');
  std::string label =
      fmt::format("{}{}", event.kind == ActionKind::kBackward ? 'B' : 'F', event.microbatch);
  label.resize(end - begin - 1, event.kind == ActionKind::kBackward ? '=' : '-');
  line.replace(begin, label.size(), label);
}

}  // namespace

std::string picture_of_schedule(const Plan& plan) {
  const auto stages = static_cast<size_t>(plan.degrees.pipeline);
  const int64_t all = *plan.job.training.microbatches;
  // Enough to see the pipeline fill, run and empty.
  const int64_t shown = std::min<int64_t>(all, 2 * plan.degrees.pipeline + 2);
  const PipelineKind kind = *plan.job.parallel.pipeline;
  const int64_t active = plan.job.parallel.active_microbatches.value_or(0);
  const PipelineCosts costs(stages, {{kForward, kBackward, 0, 0, 0}});
  const PipelineTime time =
      simulate_pipeline(costs, condensed_schedule({kind, plan.degrees.pipeline, 1, shown, active}));

  std::vector<std::string> lines(stages);
  for (const PipelineEvent& event : time.events) {
    draw(lines[static_cast<size_t>(event.stage)], event);
  }
  const Schedule schedule = make_schedule(schedule_parameters(plan));
  std::string text = fmt::format(
      "pipeline {}: {} stage{}, {} microbatch{}{}\n"
      "F = forward, B = backward (twice as long), of the microbatch with that number\n\n",
      name_of(kind), stages, stages == 1 ? "" : "s", all, all == 1 ? "" : "es",
      shown < all ? fmt::format("; the picture shows {}, more repeat its middle", shown) : "");
  for (size_t stage = 0; stage < stages; ++stage) {
    const double idle = time.idle_s[stage] / time.makespan_s;
    text += fmt::format("stage {:<3}|{:<{}}|  idle {:.0f} %, at most {} live\n", stage,
                        lines[stage], static_cast<size_t>(std::lround(time.makespan_s)) * kCell,
                        100 * idle, max_live(schedule, static_cast<int64_t>(stage)));
  }
  return text;
}

}  // namespace smp
