#include "smp/planner/report/schedule_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/job_names.h"
#include "time/pipeline_time.h"

namespace smp::report {
namespace {

constexpr size_t kWidestCell = 4;  // characters of one forward
constexpr size_t kNarrowestCell = 2;
constexpr size_t kStagesShown = 24;
constexpr size_t kNumbersShown = 16;

std::string plural(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what[0] == 'm' ? "es" : "s");
}

// "F3" in a cell, "B3--" over two; the letters of every other chunk are small.
void draw(std::string& line, const time::PipelineEvent& event, size_t cell) {
  const auto begin = static_cast<size_t>(std::lround(event.begin_s)) * cell;
  const auto end = static_cast<size_t>(std::lround(event.end_s)) * cell;
  if (line.size() < end) line.resize(end, ' ');
  const bool forward = event.kind == schedule::ActionKind::kForward;
  char letter = forward ? 'F' : event.kind == schedule::ActionKind::kBackward ? 'B' : 'W';
  if (event.chunk % 2 == 1) letter = static_cast<char>(letter - 'A' + 'a');
  std::string number = std::to_string(event.microbatch);
  // A narrow cell has room for the last digit alone.
  if (number.size() + 1 > cell) number = number.substr(number.size() + 1 - cell);
  std::string label = letter + number;
  const size_t gap = cell > kNarrowestCell ? 1 : 0;
  label.resize(std::max(label.size(), end - begin - gap), forward ? '-' : '=');
  line.replace(begin, label.size(), label);
}

// Microbatches enough to see the pipeline fill, run and empty.
int64_t enough(const schedule::ScheduleShape& shape) {
  const int64_t p = shape.stages;
  const int64_t wanted = shape.kind == PipelineKind::kVirtual ? 2 * p
                         : shape.kind == PipelineKind::kZbV   ? 2 * p
                                                              : 2 * p + 2;
  return std::min(shape.microbatches, wanted);
}

time::PipelineTime textbook_time(const schedule::ScheduleShape& shape) {
  const bool defers = schedule::defers_weight_gradients(shape.kind);
  const time::ChunkCost cost{.forward_s = 1, .backward_s = defers ? 1.0 : 2.0, .weight_s = 1};
  const time::PipelineCosts costs(
      static_cast<size_t>(shape.stages),
      std::vector<time::ChunkCost>(static_cast<size_t>(shape.chunks()), cost));
  return time::simulate_pipeline(costs, shape, time::PlayedDetail::kActions);
}

std::string legend(const schedule::ScheduleShape& shape) {
  std::string text =
      schedule::defers_weight_gradients(shape.kind)
          ? "F = forward, B = backward (gradients of inputs), W = gradients of weights\n"
          : "F = forward, B = backward (twice as long)\n";
  text += "numbers are microbatches";
  if (shape.kind == PipelineKind::kZbV) text += "; lower case: the chunk that comes back up";
  if (shape.kind == PipelineKind::kVirtual) {
    text += fmt::format("; chunks 0 to {} alternate in upper and lower case", shape.chunks() - 1);
  }
  return text + "\n";
}

// "3, 2, 1", shortened in the middle.
std::string numbers(const std::vector<std::string>& list) {
  if (std::all_of(list.begin(), list.end(), [&](const auto& n) { return n == list.front(); })) {
    return list.front() + (list.size() > 1 ? " on each stage" : "");
  }
  if (list.size() <= kNumbersShown) return fmt::format("{}", fmt::join(list, ", "));
  const auto half = static_cast<std::ptrdiff_t>(kNumbersShown / 2);
  return fmt::format("{}, ..., {}", fmt::join(list.begin(), list.begin() + half, ", "),
                     fmt::join(list.end() - half, list.end(), ", "));
}

std::string live_text(const schedule::ScheduleShape& shape) {
  const schedule::Schedule schedule = time::condensed_schedule(shape);
  std::vector<std::string> live;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    const double microbatches = static_cast<double>(schedule::max_live(schedule, stage)) /
                                static_cast<double>(shape.chunks());
    live.push_back(fmt::format("{:.4g}", microbatches));
  }
  return numbers(live);
}

std::string idle_text(const time::PipelineTime& time) {
  std::vector<std::string> idle;
  for (const double seconds : time.idle_s) {
    idle.push_back(fmt::format("{:.0f} %", 100 * seconds / time.makespan_s));
  }
  return numbers(idle);
}

}  // namespace

std::string picture_of_schedule(const Plan& plan, int64_t columns) {
  const schedule::ScheduleShape whole = layout::schedule_shape(plan);
  schedule::ScheduleShape shown = whole;
  shown.microbatches = enough(whole);
  const time::PipelineTime time = textbook_time(shown);
  const auto units = static_cast<size_t>(std::lround(time.makespan_s));
  const auto stages = static_cast<size_t>(whole.stages);
  const size_t name_width = std::to_string(stages - 1).size();
  const size_t frame = name_width + 3;  // " 0 |" and "|"
  const size_t room = std::max<size_t>(static_cast<size_t>(columns), frame + 20) - frame;
  const size_t cell = std::clamp(room / units, kNarrowestCell, kWidestCell);

  std::vector<std::string> lines(stages);
  for (const time::PipelineEvent& event : time.events) {
    draw(lines[static_cast<size_t>(event.stage)], event, cell);
  }
  const size_t width = std::min(units * cell, room);
  std::string text =
      fmt::format("pipeline {}: {}, {}\n", name_of(whole.kind), plural(whole.stages, "stage"),
                  plural(whole.microbatches, "microbatch"));
  text += legend(whole);
  if (shown.microbatches < whole.microbatches) {
    text += fmt::format("drawn: {} microbatches; more repeat the middle\n", shown.microbatches);
  }
  text += "\n";
  for (size_t stage = 0; stage < stages; ++stage) {
    if (stages > kStagesShown && stage == kStagesShown / 2) {
      const size_t skipped = stages - kStagesShown;
      text += fmt::format("{:>{}} |{} more stages\n", "..", name_width, skipped);
      stage += skipped;
    }
    text +=
        fmt::format("{:>{}} |{:<{}}|\n", stage, name_width, lines[stage].substr(0, width), width);
  }
  if (units * cell > room) {
    text += fmt::format("cut off: the whole picture needs --width {}\n",
                        frame + units * kNarrowestCell);
  }
  text += fmt::format("\nidle in the picture: {}\nlive microbatches: {}\n", idle_text(time),
                      live_text(whole));
  return text;
}

}  // namespace smp::report
