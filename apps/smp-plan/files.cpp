#include "files.h"

#include <fmt/format.h>

#include <cstdio>

#include "screen.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {

Plan plan_of_file(const std::string& path, importers::AnyFiles more) {
  const bool alone = more.sources.empty();
  if (alone && files::is_plan_file(path)) return planfile::read_plan(path);
  more.sources.insert(more.sources.begin(), jobfile::load_job_source(path));
  for (const jobfile::JobSource& source : more.sources) {
    if (files::kind_of_text(source.text) != files::FileKind::kPlan) continue;
    if (alone) return planfile::parse_plan(path, source.text);
    throw ConfigError(source.path + ": this is a plan: give it alone, without --with");
  }
  const importers::JobOfFiles read = importers::job_of_files(more);
  for (const std::string& warning : read.warnings) {
    print(stderr, fmt::format("warning: {}\n", warning));
  }
  search::SearchResult result = search::plan_job(read.job);
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(fmt::format("{}: no layout fits: {}", path,
                                   std::get<search::Infeasible>(result.best).problem));
}

}  // namespace smp
