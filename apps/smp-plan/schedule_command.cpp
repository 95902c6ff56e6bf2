#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/plan/files/text_file.h"
#include "smp/planner/report/schedule_picture.h"
#include "smp/planner/runpage/planned_trace.h"

namespace smp {
namespace {

constexpr const char* kScheduleDescription =
    R"(Draws the pipeline schedule of a plan: the microbatches of each stage over time.

Examples:
  smp-plan schedule plan.yaml
  smp-plan schedule plan.yaml --width 200
  smp-plan schedule plan.yaml --trace planned.json       each action of the predicted step, for
                                                         https://ui.perfetto.dev
)";

struct ScheduleRequest {
  std::string path;
  int64_t width = 80;
  std::string trace;
  bool by_rank = false;
};

ExitCode draw_schedule(const ScheduleRequest& request) {
  const Plan plan = plan_of_file(request.path);
  if (request.trace.empty()) {
    print(stdout, report::picture_of_schedule(plan, request.width));
    return ExitCode::kOk;
  }
  std::string text;
  runpage::write_planned_trace(plan, request.by_rank, [&](std::string_view part) { text += part; });
  files::write_text_file(request.trace, text);
  print(stdout, fmt::format("wrote {}\n", request.trace));
  return ExitCode::kOk;
}

}  // namespace

void add_schedule_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<ScheduleRequest>();
  CLI::App* command = app.add_subcommand("schedule", "the pipeline schedule as a picture");
  command->description(kScheduleDescription);
  command->add_option("plan", request->path, "plan or job file")->required();
  CLI::Option* width =
      command->add_option("--width", request->width, "width of the picture in columns")
          ->check(CLI::Range(40, 100000))
          ->capture_default_str();
  CLI::Option* trace =
      command
          ->add_option("--trace", request->trace,
                       "write the predicted step as a timeline, in the form of a run's trace.json")
          ->excludes(width);
  command
      ->add_flag("--ranks", request->by_rank,
                 "with --trace: a timeline of each rank, not of each stage")
      ->needs(trace);
  command->callback([request, &run] { run = [request] { return draw_schedule(*request); }; });
}

}  // namespace smp
