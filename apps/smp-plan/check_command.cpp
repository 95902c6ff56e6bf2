#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/planner/search/check_plan.h"

namespace smp {
namespace {

constexpr const char* kCheckDescription =
    R"(Proves a plan without running it: degrees, batch, memory of every rank, the schedule.

Examples:
  smp-plan check plan.yaml
  smp-plan check job.yaml              plans the job first
)";

ExitCode run_check(const std::string& path) {
  const Plan plan = plan_of_file(path);
  const std::vector<std::string> problems = search::check(plan);
  for (const std::string& problem : problems) {
    print(stderr, fmt::format("{}: {}\n", path, problem));
  }
  if (!problems.empty()) return ExitCode::kBadConfig;
  print(stdout, fmt::format("{}: proved: degrees, batch, memory of {} rank class{}, schedule of {} "
                            "stage{}\n",
                            path, plan.predictions.ranks.size(),
                            plan.predictions.ranks.size() == 1 ? "" : "es", plan.degrees.pipeline,
                            plan.degrees.pipeline == 1 ? "" : "s"));
  return ExitCode::kOk;
}

}  // namespace

void add_check_command(CLI::App& app, Run& run) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("check", "prove a plan without running it");
  command->description(kCheckDescription);
  command->add_option("plan", *path, "plan or job file")->required();
  command->callback([path, &run] { run = [path] { return run_check(*path); }; });
}

}  // namespace smp
