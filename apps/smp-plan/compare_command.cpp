#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "commands.h"
#include "files.h"
#include "screen.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/runs/compare.h"

namespace smp {
namespace {

constexpr const char* kCompareDescription =
    R"(Compares the predictions of a plan with the measurements of its run: bytes of every rank by
category, bytes on the wire, step time. Exits with 1 if an error exceeds its limit.

Examples:
  smp-plan compare plan.yaml runs/quickstart/report.json
  smp-plan compare plan.yaml report.json --max-memory-error 10% --max-time-error 20%
)";

struct CompareRequest {
  std::string plan;
  std::string report;
  std::string memory_error;
  std::string time_error;
  bool json = false;
};

// "10%" and "0.1" are the same.
std::optional<double> share_of(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (*end == '%') {
    value /= 100;
    ++end;
  }
  if (end == text.c_str() || *end != '\0' || !(value >= 0 && value < 1000)) {
    throw UsageError(
        fmt::format("{}: expected a share such as 10% or 0.1, not '{}'", option, text));
  }
  return value;
}

ExitCode run_compare(const CompareRequest& request) {
  const runs::ComparisonLimits limits{share_of("--max-memory-error", request.memory_error),
                                      share_of("--max-time-error", request.time_error)};
  const Plan plan = planfile::read_plan(request.plan);
  const runs::Comparison comparison =
      runs::compare(plan, runs::load_run_report(request.report), limits);
  print(stdout,
        request.json ? runs::comparison_json(comparison) : runs::comparison_text(comparison));
  return comparison.problems.empty() ? ExitCode::kOk : ExitCode::kFailure;
}

}  // namespace

void add_compare_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<CompareRequest>();
  CLI::App* command =
      app.add_subcommand("compare", "compare the predictions of a plan with its run");
  command->description(kCompareDescription);
  command->add_option("plan", request->plan, "the plan that was run")->required();
  command->add_option("report", request->report, "report.json of the run's folder")->required();
  command
      ->add_option("--max-memory-error", request->memory_error,
                   "largest error of a rank's peak, e.g. 10%")
      ->type_name("SHARE")
      ->check(not_empty);
  command
      ->add_option("--max-time-error", request->time_error,
                   "largest error of the step time, e.g. 20%")
      ->type_name("SHARE")
      ->check(not_empty);
  command->add_flag("--json", request->json, "the comparison as JSON");
  command->callback([request, &run] { run = [request] { return run_compare(*request); }; });
}

}  // namespace smp
