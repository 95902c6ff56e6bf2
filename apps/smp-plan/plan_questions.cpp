#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "command_line.h"
#include "commands.h"
#include "files.h"
#include "plan_request.h"
#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/calibration/scale_run.h"
#include "smp/planner/search/cases.h"
#include "smp/planner/search/solve.h"

namespace smp {
namespace {

// Tables and answers for people, as wide as their terminal.
void print_text(const PlanRequest& request, const std::string& text) {
  show(stdout, text, terminal_of(stdout, request.plain, request.width));
}

// "a,b,c" -> a, b, c; the commas of a list in brackets are its own.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    parts.back() += c;
  }
  return parts;
}

// Of errors that name --set beside a value that came by another option: names that one.
std::string blamed_on(const std::string& option, const std::string& said, std::string text) {
  const std::string set = "--set: ", shown = fmt::format("\n  {}\n", said);
  for (size_t at = text.find(shown); at != text.npos; at = text.find(shown, at + 1)) {
    const size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    if (text.compare(line, set.size(), set) == 0) text.replace(line, set.size() - 2, option);
  }
  return text;
}

// A row for every value, also for one that no job can have; where none of them can be read the
// question itself is wrong.
std::vector<search::PlannedCase> cases_of(const PlanRequest& request, const std::string& cluster,
                                          const std::string& key,
                                          const std::vector<std::string>& values) {
  std::vector<search::PlannedCase> cases;
  std::optional<ConfigError> wrong;
  size_t unread = 0;
  for (const std::string& value : values) {
    std::optional<JobSpec> job;
    try {
      job = read_request(request, cluster, {fmt::format("{}={}", key, value)});
    } catch (const ConfigError& error) {
      const std::string text =
          blamed_on("--what-if", fmt::format("{}={}", key, value), error.what());
      if (!wrong) wrong = ConfigError(text);
      ++unread;
      // The first line says it; those below show where it stands in the question.
      search::PlannedCase refused;
      refused.name = value;
      refused.problem = text.substr(0, text.find('\n'));
      if (refused.problem.starts_with("--what-if: ")) refused.problem.erase(0, 11);
      cases.push_back(refused);
    }
    if (job) cases.push_back(search::planned_case({value, *job}, search_options(request)));
  }
  if (unread == values.size()) throw *wrong;
  return cases;
}

}  // namespace

ExitCode rank_clusters(const PlanRequest& request) {
  std::vector<search::NamedJob> jobs;
  for (const std::string& cluster : request.clusters) {
    const JobSpec job = read_request(request, cluster);
    jobs.push_back({fmt::format("{} x {}", job.cluster.hosts, job.cluster.name), job});
  }
  const std::vector<search::PlannedCase> cases =
      search::ranked_by_time(search::planned_cases(jobs, search_options(request)));
  if (request.json) {
    print(stdout, search::cases_json(cases));
  } else {
    print_text(request, search::cases_text("cluster", cases) + search::cost_order_text(cases));
  }
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
    const std::vector<search::PlannedCase> cases =
        cases_of(request, cluster, key, parts_of(question.substr(equals + 1)));
    for (const search::PlannedCase& one : cases) any |= one.problem.empty();
    if (request.json) {
      json += fmt::format("{}{{\"key\": \"{}\", \"cases\": {}}}", json.empty() ? "" : ",\n", key,
                          search::cases_json(cases));
    } else {
      print_text(request, search::cases_text(key, cases) + "\n");
    }
  }
  if (request.json) print(stdout, fmt::format("[{}]\n", json));
  return any ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

ExitCode print_solution(const PlanRequest& request) {
  const std::optional<search::Quantity> quantity = search::quantity_of(request.solve);
  if (request.output == "-") {
    throw UsageError("--solve prints its answer: write the plan to a file with -o FILE");
  }
  if (!quantity) {
    throw UsageError(fmt::format("--solve '{}': expected model, layers, batch, sequence or hosts",
                                 request.solve));
  }
  const search::SolveRequest question{*quantity, request.step_s, search_options(request).strategy};
  const JobSpec job =
      read_request(request, request.clusters.empty() ? "" : request.clusters.front());
  files::refuse_output(request.output, files::FileKind::kPlan);
  const search::SolveResult result = search::solve(job, question);
  if (request.json) {
    print(stdout, search::solve_json(question, result));
  } else {
    print_text(request, search::solve_text(question, result));
  }
  if (result.found && !request.output.empty())
    files::write_text_file(request.output, planfile::write_plan(result.plan));
  return result.found ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

calibration::ScaledRun scaled_from(const PlanRequest& request, const Plan& plan) {
  namespace fs = std::filesystem;
  const fs::path from(request.from);
  if (from.extension() == ".jsonl") {  // a published run: its plan, its peak, its step time
    const std::vector<calibration::CalibrationRun> runs = calibration::load_runs(request.from);
    if (runs.size() != 1) {
      throw UsageError(
          fmt::format("--from {}: expected one run, the file has {}", request.from, runs.size()));
    }
    return calibration::scale_run(runs.front(), plan);
  }
  const Plan run_plan = planfile::read_plan((from.parent_path() / "plan.yaml").string());
  return calibration::scale_run(run_plan, runs::load_run_report(request.from), plan);
}

}  // namespace smp
