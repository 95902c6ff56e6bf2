#include "files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {

Plan plan_of_files(const std::vector<std::string>& paths, importers::AnyFiles request) {
  for (const std::string& path : paths) {
    const bool alone = paths.size() == 1;
    if (alone && files::is_plan_file(path)) return planfile::read_plan(path);
    jobfile::JobSource source = jobfile::load_job_source(path);
    const bool is_plan = files::kind_of_text(source.text) == files::FileKind::kPlan;
    if (is_plan && alone) return planfile::parse_plan(path, source.text);
    if (is_plan) throw ConfigError(path + ": this is a plan: give it alone, without other files");
    request.sources.push_back(std::move(source));
  }
  const importers::JobOfFiles files = importers::job_of_files(request);
  for (const std::string& warning : files.warnings) {
    print(stderr, fmt::format("warning: {}\n", warning));
  }
  search::SearchResult result = search::plan_job(files.job);
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(fmt::format("{}: no layout fits: {}", fmt::join(paths, ", "),
                                   std::get<search::Infeasible>(result.best).problem));
}

Plan plan_of_file(const std::string& path) { return plan_of_files({path}, {}); }

}  // namespace smp
