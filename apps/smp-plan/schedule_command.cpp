#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/planner/schedule_picture.h"

namespace smp {
namespace {

constexpr const char* kScheduleDescription =
    R"(Draws the pipeline schedule of a plan: when each stage runs which microbatch.

Examples:
  smp-plan schedule plan.yaml
  smp-plan schedule plan.yaml --width 200
)";

}  // namespace

void add_schedule_command(CLI::App& app, Run& run) {
  auto path = std::make_shared<std::string>();
  auto width = std::make_shared<int64_t>(80);
  CLI::App* command = app.add_subcommand("schedule", "the pipeline schedule as a picture");
  command->description(kScheduleDescription);
  command->add_option("plan", *path, "plan or job file")->required();
  command->add_option("--width", *width, "columns of the picture")
      ->check(CLI::Range(40, 100000))
      ->capture_default_str();
  command->callback([path, width, &run] {
    run = [path, width] {
      print(stdout, picture_of_schedule(plan_of_file(*path), *width));
      return ExitCode::kOk;
    };
  });
}

}  // namespace smp
