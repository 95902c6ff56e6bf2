#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "files.h"
#include "smp/plan/cluster_catalog.h"
#include "smp/planner/report.h"
#include "smp/planner/search.h"

namespace smp {
namespace {

constexpr const char* kDescription =
    R"(Chooses how to split the training of a model over a cluster, and says why.

Examples:
  smp-plan configs/jobs/quickstart.yaml -o plan.yaml
  smp-plan configs/models/llama2-70b.yaml --cluster configs/clusters/p4d.24xlarge.yaml --hosts 32
  smp-plan job.yaml --set parallel.tensor_parallel_degree=2 --set training.micro_batch=4
  smp-plan job.yaml --top 5 --explain          other layouts that fit; every term with its source
  smp-plan job.yaml --json                     the same for programs
  smp-plan check plan.yaml                     prove a plan without running it
  smp-plan groups plan.yaml --rank 3           SMP's groups of a rank, sizes in both countings
  smp-plan schedule plan.yaml                  the pipeline schedule as a picture
  smp-plan schema                              JSON Schema of job files, for editors

Usage: smp-plan [options] job.yaml    or    smp-plan command ...
Exit codes: 0 a plan; 1 failure; 2 wrong usage; 3 bad job file or pinned key; 4 nothing fits.
)";

struct PlanRequest {
  std::string job;
  std::string cluster;
  int64_t hosts = 0;
  std::vector<std::string> overrides;
  std::string output;
  bool json = false;
  ReportOptions report;
};

JobSpec read_request(const PlanRequest& request) {
  std::vector<JobSource> sources = {load_job_source(request.job)};
  if (!request.cluster.empty()) sources.push_back(cluster_source(request.cluster));
  std::vector<std::string> overrides;
  if (request.hosts > 0) overrides.push_back(fmt::format("cluster.hosts={}", request.hosts));
  overrides.insert(overrides.end(), request.overrides.begin(), request.overrides.end());
  return read_job(sources, overrides);
}

ExitCode run_plan(const PlanRequest& request) {
  const SearchResult result = plan_job(read_request(request), {.top = request.report.top});
  const Plan* plan = std::get_if<Plan>(&result.best);
  const bool plan_to_stdout = request.output == "-";
  if (plan != nullptr && plan_to_stdout) std::fputs(write_plan(*plan).c_str(), stdout);
  if (plan != nullptr && !request.output.empty() && !plan_to_stdout) {
    write_file(request.output, write_plan(*plan));
  }
  std::FILE* terminal = plan_to_stdout ? stderr : stdout;
  if (request.json) {
    std::fputs(report_json(result, request.report).c_str(), terminal);
  } else if (plan != nullptr) {
    std::fputs(report_text(result, request.report).c_str(), terminal);
    if (!request.output.empty() && !plan_to_stdout) {
      std::fputs(fmt::format("\nwritten to {}\n", request.output).c_str(), terminal);
    }
  } else {
    std::fputs(infeasible_text(result, request.report).c_str(), stderr);
  }
  return plan != nullptr ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

}  // namespace

void add_plan_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<PlanRequest>();
  app.description(kDescription);
  app.add_option("job", request->job, "job file: model, cluster, training, parallel");
  app.add_option("--cluster", request->cluster,
                 "a known cluster, or a file whose cluster section replaces the job's")
      ->type_name("FILE");
  app.add_option("--hosts", request->hosts, "hosts of the cluster")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--set", request->overrides, "a key and its value, over what the files say")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("-o,--output", request->output, "write the plan there; - is standard output")
      ->type_name("FILE");
  app.add_flag("--json", request->json, "the report as JSON");
  app.add_option("--top", request->report.top, "list this many of the layouts that fit")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, int64_t{32}));
  app.add_flag("--explain", request->report.explain,
               "every layout tried, every memory term with its source");
  app.final_callback([request, &run] {
    if (!run && !request->job.empty()) run = [request] { return run_plan(*request); };
  });
}

}  // namespace smp
