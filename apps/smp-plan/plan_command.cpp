#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "command_line.h"
#include "commands.h"
#include "files.h"
#include "plan_request.h"
#include "screen.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {
namespace {

constexpr const char* kPlanDescription =
    R"(Chooses how to split the training of a model over a cluster, and prints the reasons.

Examples:
  smp-plan configs/jobs/quickstart.yaml -o plan.yaml
  smp-plan configs/models/llama2-70b.yaml --cluster configs/clusters/p4d.24xlarge.yaml --hosts 32
  smp-plan llama3-70b --cluster p5.48xlarge --hosts 8          a published model: smp-plan models
  smp-plan job.yaml --set parallel.tensor_parallel_degree=2 --set training.micro_batch=4
  smp-plan job.yaml --set training.data.path=corpus --set training.data.pack=documents
                                               your own data: corpus.bin and .idx (docs/data.md)
  smp-plan job.yaml --top 5 --explain          other layouts that fit; every term with its source
  smp-plan job.yaml --json                     the report as JSON
  smp-plan job.yaml --html report.html         the report as a page with pictures
  smp-plan job.yaml --strategy best-practice   search in the order of the SMP best practices
  smp-plan job.yaml --pareto                   the Pareto front of step time and memory
  smp-plan job.yaml --what-if training.micro_batch=1,2,4 --what-if cluster.hosts=8,16
  smp-plan job.yaml --cluster p4d.24xlarge --cluster p5.48xlarge     rank clusters
  smp-plan job.yaml --solve hosts --step-time 10     the fewest hosts with a step of 10 s
  smp-plan job.yaml --from runs/j/report.json  predictions scaled by the errors of a run
  smp-plan job.yaml --cluster local            this host, which is measured once, in about 3 s
  smp-plan check plan.yaml                     prove a plan without running it
  smp-plan groups plan.yaml --rank 3           the groups of a rank by SMP's names
  smp-plan schedule plan.yaml                  the pipeline schedule as a picture
  smp-plan schema                              JSON Schema of job files, for editors

Usage: smp-plan [options] job.yaml    or    smp-plan command ...
Exit codes: 0 a plan; 1 failure; 2 wrong usage; 3 bad job file or pinned key; 4 no layout fits.
)";

choice::Strategy strategy_of(const std::string& name) {
  for (const choice::Strategy strategy :
       {choice::Strategy::kFastest, choice::Strategy::kBestPractice}) {
    if (name_of(strategy) == name) return strategy;
  }
  throw UsageError(fmt::format("--strategy '{}': expected fastest or best-practice", name));
}

// Questions of their own print an answer of their own: what shapes the report would be ignored.
void refuse_unheard(const PlanRequest& request) {
  if (request.step_s > 0 && request.solve.empty()) {
    throw UsageError("--step-time needs --solve, as in --solve hosts --step-time 10");
  }
  if (!request.html.empty() && request.html == request.output) {
    throw UsageError(fmt::format("-o and --html both write {}", request.html));
  }
  const bool solves = !request.solve.empty();
  const bool asks = !request.what_if.empty();
  const bool ranks = request.clusters.size() > 1;
  if (!solves && !asks && !ranks) return;
  const char* question = solves ? "--solve" : asks ? "--what-if" : "a ranking of clusters";
  const struct {
    bool given;
    const char* option;
  } others[] = {
      {solves && asks, "--what-if"},
      {(solves || asks) && ranks, "several --cluster"},
      {!solves && !request.output.empty(), "-o"},
      {!request.html.empty(), "--html"},
      {request.report.top > 1, "--top"},
      {request.report.explain, "--explain"},
      {request.pareto, "--pareto"},
      {!request.from.empty(), "--from"},
  };
  for (const auto& other : others) {
    if (other.given) {
      throw UsageError(fmt::format("{} cannot be used with {}: run smp-plan once for each",
                                   other.option, question));
    }
  }
}

// Puts which numbers a plan for this host has among its reasons.
void add_reason(search::SearchResult& result, const std::string& reason) {
  Plan* plan = std::get_if<Plan>(&result.best);
  if (plan != nullptr && !reason.empty()) plan->reasons.push_back(reason);
}

ExitCode run_plan(const PlanRequest& request) {
  refuse_unheard(request);
  if (!request.solve.empty()) return print_solution(request);
  if (!request.what_if.empty()) return print_what_if(request);
  if (request.clusters.size() > 1) return rank_clusters(request);
  const JobSpec job =
      read_request(request, request.clusters.empty() ? "" : request.clusters.front());
  files::refuse_output(request.output, files::FileKind::kPlan);
  files::refuse_output(request.html, files::FileKind::kPage);
  search::SearchResult result = search::plan_job(job, search_options(request));
  add_reason(result, request.local->reason());
  const Plan* plan = std::get_if<Plan>(&result.best);
  std::optional<calibration::ScaledRun> scaled;
  if (plan != nullptr && !request.from.empty()) scaled = scaled_from(request, *plan);
  const bool plan_to_stdout = request.output == "-";
  if (plan != nullptr && plan_to_stdout) std::fputs(planfile::write_plan(*plan).c_str(), stdout);
  if (plan != nullptr && !request.output.empty() && !plan_to_stdout) {
    files::write_text_file(request.output, planfile::write_plan(*plan));
  }
  if (!request.html.empty()) files::write_text_file(request.html, report::report_html(result));
  std::FILE* out = plan_to_stdout || plan == nullptr ? stderr : stdout;
  if (request.json) {
    print(plan_to_stdout ? stderr : stdout, report::report_json(result, request.report, scaled));
    return plan != nullptr ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
  }
  const report::Terminal terminal = terminal_of(out, request.plain, request.width);
  report::ReportOptions options = request.report;
  options.columns = terminal.columns;
  std::string text = plan != nullptr ? report::report_text(result, options)
                                     : report::infeasible_text(result, options);
  if (plan != nullptr && !request.output.empty() && !plan_to_stdout) {
    text += fmt::format("\nwritten to {}\n", request.output);
  }
  if (!request.html.empty()) text += fmt::format("page     {}\n", request.html);
  if (scaled) text += fmt::format("\n{}", calibration::scaled_text(*scaled));
  show(out, text, terminal);
  return plan != nullptr ? ExitCode::kOk : ExitCode::kNoFeasiblePlan;
}

// A plan, and what is nearly the name of a model, are no job files: says what to type for them.
void require_job_file(const std::string& path) {
  if (files::is_plan_file(path)) {
    throw ConfigError(
        fmt::format("{0}: expected a job file, but this is a plan: smp-plan check {0} proves it, "
                    "smp-launch {0} runs it",
                    path));
  }
  std::error_code none;
  if (std::filesystem::exists(path, none) || path.find('/') != std::string::npos) return;
  const std::vector<std::string> near = jobfile::models_like(path);
  if (near.empty()) return;
  throw ConfigError(fmt::format("{}: no such file; known models are {}: smp-plan {} plans one",
                                path, fmt::join(near, ", "), near.front()));
}

// The file; the name of a model alone is a job of that model.
jobfile::JobSource job_of(const std::string& path) {
  std::error_code none;
  const jobfile::NamedModel* model = jobfile::find_model(path);
  if (model != nullptr && !std::filesystem::exists(path, none)) {
    return {fmt::format("{}.yaml", model->name), fmt::format("model: {}\n", model->name)};
  }
  require_job_file(path);
  return jobfile::load_job_source(path);
}

}  // namespace

JobSpec read_request(const PlanRequest& request, const std::string& cluster,
                     const std::vector<std::string>& more) {
  std::vector<std::string> overrides;
  if (request.hosts > 0) overrides.push_back(fmt::format("cluster.hosts={}", request.hosts));
  overrides.insert(overrides.end(), request.overrides.begin(), request.overrides.end());
  overrides.insert(overrides.end(), more.begin(), more.end());
  const std::string job = request.job == "-" ? "/dev/stdin" : request.job;
  std::vector<jobfile::JobSource> sources = importers::with_hf_model(job_of(job), overrides);
  if (!cluster.empty()) sources.push_back(jobfile::cluster_source(cluster));
  JobSpec spec = jobfile::read_job(sources, overrides);
  request.local->apply(spec, overrides);
  // They are not read here, but must not be lost.
  for (const std::string& path : data::named_data(spec.training)) files::remember_input(path);
  return spec;
}

search::SearchOptions search_options(const PlanRequest& request) {
  return {.strategy = strategy_of(request.strategy),
          .top = request.report.top,
          .pareto = request.pareto,
          .explain = request.report.explain};
}

void add_plan_command(CLI::App& app, Run& run) {
  auto request = std::make_shared<PlanRequest>();
  app.description(kPlanDescription);
  app.add_option("job", request->job,
                 "job file: model, cluster, training, parallel; - is standard input");
  app.add_option("--cluster", request->clusters,
                 "a known cluster, or a file whose cluster section replaces the job's; several "
                 "clusters are ranked")
      ->type_name("FILE")
      ->check(not_empty)
      ->allow_extra_args(false);
  app.add_option("--hosts", request->hosts, "hosts of the cluster")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--set", request->overrides, "set a key, overriding the files")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("-o,--output", request->output, "write the plan to FILE; - is standard output")
      ->type_name("FILE")
      ->check(not_empty);
  app.add_flag("--json", request->json, "the report as JSON");
  app.add_option("--html", request->html, "the report as a page, without network or scripts")
      ->type_name("FILE");
  app.add_flag("--plain", request->plain, "no colours and no folded lines");
  app.add_option("--width", request->width, "fold lines at this many columns")
      ->type_name("COLUMNS")
      ->check(CLI::Range(int64_t{40}, int64_t{1000}));
  app.add_option("--top", request->report.top, "number of layouts to list, the best included")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, int64_t{32}));
  app.add_flag("--explain", request->report.explain,
               "print every layout tried, and every memory term with its source");
  app.add_option("--strategy", request->strategy,
                 "fastest (the default), or best-practice: the order of the SMP best practices")
      ->type_name("NAME");
  app.add_flag("--pareto", request->pareto, "print the Pareto front of step time and memory");
  app.add_option("--what-if", request->what_if, "plan again with each value of a key")
      ->type_name("SECTION.KEY=A,B,C")
      ->allow_extra_args(false);
  app.add_option("--solve", request->solve,
                 "the largest model, layers, batch or sequence that fits, or the fewest hosts")
      ->type_name("WHAT");
  app.add_option("--step-time", request->step_s, "longest step time in seconds, for --solve")
      ->type_name("S")
      ->check(above_zero);
  app.add_flag("--no-measure", request->no_measure,
               "of a cluster named local use the numbers of the file, not those of this host");
  app.add_option("--from", request->from,
                 "report.json of a measured run, or a .jsonl file of one published run: the "
                 "prediction errors of that run scale the predictions")
      ->type_name("FILE");
  app.final_callback([request, &run] {
    if (run || request->job.empty()) return;
    run = [request] {
      request->local = std::make_shared<LocalRates>(!request->no_measure);
      return run_plan(*request);
    };
  });
}

}  // namespace smp
