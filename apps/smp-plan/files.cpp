#include "files.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {
namespace {

// A plan keeps the path of a user's framework: where the file is still there, it can price again.
Plan with_framework_file(Plan plan) {
  FrameworkChoice& framework = plan.job.parallel.framework;
  std::error_code none;
  const bool is_path = !framework.habits && framework::is_framework_path(framework.name);
  if (is_path && std::filesystem::exists(framework.name, none)) {
    framework = framework::framework_named(framework.name);
  }
  return plan;
}

}  // namespace

PlannableFile read_plannable(const std::string& path, jobfile::JobSource& source, LocalRates& local,
                             std::vector<std::string>& warnings, importers::AnyFiles more) {
  source = files::is_plan_file(path)  // may be larger than a job file
               ? jobfile::JobSource{path, files::read_text_file(path, "plan file")}
               : jobfile::load_job_source(path);
  const bool alone = more.sources.empty();
  more.sources.insert(more.sources.begin(), source);
  for (const jobfile::JobSource& file : more.sources) {
    if (files::kind_of_text(file.text) != files::FileKind::kPlan) continue;
    // A plan was priced with its own cluster.
    if (more.hosts || more.processes_per_host || more.format || !more.recipe.empty() ||
        !more.cluster.empty()) {
      throw ConfigError(file.path +
                        ": this is a plan: give it without --cluster, --hosts, "
                        "--processes-per-host, --from and --recipe, which are for jobs");
    }
    if (alone) return with_framework_file(planfile::parse_plan(path, source.text));
    throw ConfigError(file.path + ": this is a plan: give it alone, without --with");
  }
  importers::JobOfFiles read = importers::job_of_files(more);
  warnings.insert(warnings.end(), read.warnings.begin(), read.warnings.end());
  local.apply(read.job, {});
  return std::move(read.job);
}

Plan plan_of_file(const std::string& path) {
  jobfile::JobSource source;
  LocalRates local;
  std::vector<std::string> warnings;
  PlannableFile file = read_plannable(path, source, local, warnings);
  for (const std::string& warning : warnings) print(stderr, fmt::format("warning: {}\n", warning));
  if (Plan* plan = std::get_if<Plan>(&file)) return std::move(*plan);
  search::SearchResult result = search::plan_job(std::get<JobSpec>(file));
  if (Plan* plan = std::get_if<Plan>(&result.best)) {
    if (!local.reason().empty()) plan->reasons.push_back(local.reason());
    return std::move(*plan);
  }
  throw NoFeasiblePlan(fmt::format("{}: no layout fits: {}", path,
                                   std::get<search::Infeasible>(result.best).problem));
}

}  // namespace smp
