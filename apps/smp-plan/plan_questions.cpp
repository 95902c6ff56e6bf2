#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "command_line.h"
#include "commands.h"
#include "files.h"
#include "plan_request.h"
#include "smp/planner/cases.h"
#include "smp/planner/scale_run.h"
#include "smp/planner/solve.h"

namespace smp {
namespace {

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

// "a,b,c" -> a, b, c
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

ExitCode rank_clusters(const PlanRequest& request) {
  std::vector<NamedJob> jobs;
  for (const std::string& cluster : request.clusters) {
    const JobSpec job = read_request(request, cluster);
    jobs.push_back({fmt::format("{} x {}", job.cluster.hosts, job.cluster.name), job});
  }
  const std::vector<PlannedCase> cases =
      ranked_by_time(planned_cases(jobs, search_options(request)));
  print(request.json ? cases_json(cases) : cases_text("cluster", cases));
  return cases.front().problem.empty() ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

ExitCode print_what_if(const PlanRequest& request) {
  const std::string cluster = request.clusters.empty() ? "" : request.clusters.front();
  bool any = false;
  std::string json;
  for (const std::string& question : request.what_if) {
    const size_t equals = question.find('=');
    if (equals == std::string::npos || equals + 1 == question.size()) {
      throw UsageError(fmt::format(
          "--what-if '{}': write a key and its values, as in --what-if training.micro_batch=1,2,4",
          question));
    }
    const std::string key = question.substr(0, equals);
    std::vector<NamedJob> jobs;
    for (const std::string& value : parts_of(question.substr(equals + 1))) {
      jobs.push_back({value, read_request(request, cluster, {fmt::format("{}={}", key, value)})});
    }
    const std::vector<PlannedCase> cases = planned_cases(jobs, search_options(request));
    for (const PlannedCase& one : cases) any |= one.problem.empty();
    if (request.json) {
      json += fmt::format("{}{{\"key\": \"{}\", \"cases\": {}}}", json.empty() ? "" : ",\n", key,
                          cases_json(cases));
    } else {
      print(fmt::format("{}\n", cases_text(key, cases)));
    }
  }
  if (request.json) print(fmt::format("[{}]\n", json));
  return any ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

ExitCode print_solution(const PlanRequest& request) {
  const std::optional<Quantity> quantity = quantity_of(request.solve);
  if (!quantity) {
    throw UsageError(
        fmt::format("--solve '{}': one of model, layers, batch, sequence, hosts", request.solve));
  }
  const SolveRequest question{*quantity, request.step_s, search_options(request).strategy};
  const SolveResult result = solve(
      read_request(request, request.clusters.empty() ? "" : request.clusters.front()), question);
  print(request.json ? solve_json(question, result) : solve_text(question, result));
  if (result.found && !request.output.empty()) {
    if (request.output == "-") {
      throw UsageError("--solve prints its answer: write the plan to a file with -o FILE");
    }
    write_file(request.output, write_plan(result.plan));
  }
  return result.found ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

void print_scaled(const PlanRequest& request, const Plan& plan) {
  namespace fs = std::filesystem;
  const fs::path from(request.from);
  ScaledRun scaled;
  if (from.extension() == ".jsonl") {  // a published run: its plan, its peak, its step time
    const std::vector<CalibrationRun> runs = load_runs(request.from);
    if (runs.size() != 1) {
      throw UsageError(
          fmt::format("--from {}: one run is scaled, the file has {}", request.from, runs.size()));
    }
    scaled = scale_run(runs.front(), plan);
  } else {
    const Plan run_plan = read_plan((from.parent_path() / "plan.yaml").string());
    scaled = scale_run(run_plan, load_run_report(request.from), plan);
  }
  print(request.json ? scaled_json(scaled) : fmt::format("\n{}", scaled_text(scaled)));
}

}  // namespace smp
