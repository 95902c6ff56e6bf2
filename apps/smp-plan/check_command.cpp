#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "any_files_options.h"
#include "checked.h"
#include "commands.h"
#include "screen.h"

namespace smp {
namespace {

constexpr const char* kCheckDescription =
    R"(Proves a plan without running it, and says in one line whether the job fits, for CI.

Proved are degrees, batch, memory of every rank and the schedule. Known traps are warnings with
file:line:column.

Examples:
  smp-plan check job.yaml              plans the job first
  smp-plan check plan.yaml
  smp-plan check pretrain.sh --cluster dgx-h100 --hosts 4     also any file that import reads
  smp-plan check ds_config.json --with config.json --cluster p4d.24xlarge
  smp-plan check jobs/*.yaml --fail-on warning
  smp-plan check job.yaml --json       memory by term and event, seconds by part, warnings
  smp-plan check job.yaml --events     the most that a rank holds during each event of a run
  smp-plan check jobs/*.yaml --annotations github
  smp-plan check jobs/*.yaml --annotations sarif >check.sarif

Exit codes: 0 fits; 1 failure; 2 wrong usage; 3 invalid; 4 does not fit; 5 tight; 6 warnings
(--fail-on warning). Of several files the worst: 3, 4, 5, 6.
)";

struct CheckRequest {
  std::vector<std::string> files;
  AnyFilesOptions options;
  report::VerdictOptions verdict;
  std::string fail_on = "tight";
  std::string annotations;
  bool json = false;
  bool events = false;
  bool no_measure = false;
};

report::FailOn fail_on_of(const std::string& word) {
  if (word == "warning") return report::FailOn::kWarning;
  if (word == "tight") return report::FailOn::kTight;
  if (word == "no") return report::FailOn::kNo;
  throw UsageError(fmt::format("--fail-on '{}': expected warning, tight or no", word));
}

void refuse_together(const CheckRequest& request) {
  const std::string& form = request.annotations;
  if (!form.empty() && form != "github" && form != "sarif")
    throw UsageError(fmt::format("--annotations '{}': expected github or sarif", form));
  if (request.json && !form.empty())
    throw UsageError("--json and --annotations both shape the output: run smp-plan check for each");
  if (request.events && (request.json || form == "sarif"))
    throw UsageError("--events prints a table for people: --json has the events as well");
}

// The line of each file, the remarks below it.
std::string lines_of(const report::CheckedFile& file, bool events) {
  std::string text = fmt::format("{}: {}\n", file.path, file.line);
  for (const report::CheckRemark& remark : file.remarks) {
    // The first error of a file is its line.
    if (remark.is_error && &remark == &file.remarks.front()) continue;
    text += report::remark_line(file, remark);
  }
  if (events && file.verdict) text += report::events_text(*file.verdict);
  return text;
}

ExitCode run_check(const CheckRequest& request) {
  const report::FailOn fail_on = fail_on_of(request.fail_on);
  refuse_together(request);
  const bool is_sarif = request.annotations == "sarif";
  LocalRates local(!request.no_measure);
  const importers::AnyFiles more = any_files(request.options);
  std::vector<report::CheckedFile> files;
  for (const std::string& path : request.files) {
    files.push_back(checked_file(path, more, request.verdict, local));
    // A document is alone on standard output.
    if (!request.json) print(is_sarif ? stderr : stdout, lines_of(files.back(), request.events));
  }
  if (request.json) print(stdout, report::checked_json(files));
  if (is_sarif) print(stdout, report::sarif(files));
  if (request.annotations == "github") print(stdout, report::github_annotations(files));
  return report::worst_exit_code(files, fail_on);
}

}  // namespace

void add_check_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<CheckRequest>();
  CLI::App* command = app.add_subcommand("check", "prove plans without running them, for CI");
  command->description(kCheckDescription);
  command->add_option("plan", request->files, "plans, job files, or files that import reads")
      ->required();
  add_any_files_options(*command, request->options);
  command
      ->add_option("--fail-on", request->fail_on,
                   "what is no success: warning, tight (the default) or no")
      ->type_name("WHAT");
  command->add_flag("--json", request->json, "one JSON object instead of lines");
  command
      ->add_option("--annotations", request->annotations,
                   "github: workflow commands behind the lines; sarif: a SARIF document alone")
      ->type_name("FORM");
  command->add_flag("--events", request->events, "print the peak of each event of a run");
  command->add_flag("--no-measure", request->no_measure,
                    "of a cluster named local use the numbers of the file");
  command
      ->add_option("--expert-imbalance", request->verdict.expert_imbalance,
                   "share of the tokens that the fullest rank's experts get, over the average; "
                   "default 1.5")
      ->type_name("FACTOR")
      ->check(CLI::Range(1.0, 1024.0));
  command->callback([request, &run] { run = [request] { return run_check(*request); }; });
}

}  // namespace smp
