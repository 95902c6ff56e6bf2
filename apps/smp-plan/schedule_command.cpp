#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "smp/planner/schedule_picture.h"

namespace smp {
namespace {

constexpr const char* kDescription =
    R"(Draws the pipeline schedule of a plan: when each stage runs which microbatch.

Examples:
  smp-plan schedule plan.yaml
)";

}  // namespace

void add_schedule_command(CLI::App& app, Run& run) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("schedule", "the pipeline schedule as a picture");
  command->description(kDescription);
  command->add_option("plan", *path, "plan or job file")->required();
  command->callback([path, &run] {
    run = [path] {
      std::fputs(picture_of_schedule(plan_of_file(*path)).c_str(), stdout);
      return ExitCode::kOk;
    };
  });
}

}  // namespace smp
