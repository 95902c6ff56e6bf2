#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "any_files_options.h"
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
  smp-plan check pretrain.sh --cluster dgx-h100 --hosts 4     also any file that import reads
  smp-plan check ds_config.json --with config.json --cluster p4d.24xlarge
)";

struct CheckRequest {
  std::string path;
  AnyFilesOptions options;
};

ExitCode run_check(const CheckRequest& request) {
  const std::string& path = request.path;
  const Plan plan = plan_of_file(path, any_files(request.options));
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
  auto request = std::make_shared<CheckRequest>();
  CLI::App* command = app.add_subcommand("check", "prove a plan without running it");
  command->description(kCheckDescription);
  command->add_option("plan", request->path, "plan, job file, or a file that import reads")
      ->required();
  add_any_files_options(*command, request->options);
  command->callback([request, &run] { run = [request] { return run_check(*request); }; });
}

}  // namespace smp
