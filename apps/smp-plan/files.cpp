#include "files.h"

#include <fmt/format.h>

#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {

PlannableFile read_plannable(const std::string& path, jobfile::JobSource& source,
                             LocalRates& local) {
  source = files::is_plan_file(path)  // may be larger than a job file
               ? jobfile::JobSource{path, files::read_text_file(path, "plan file")}
               : jobfile::load_job_source(path);
  if (files::kind_of_text(source.text) == files::FileKind::kPlan)
    return planfile::parse_plan(path, source.text);
  JobSpec job = jobfile::read_job(importers::with_hf_model(source));
  local.apply(job, {});
  return job;
}

Plan plan_of_file(const std::string& path) {
  jobfile::JobSource source;
  LocalRates local;
  PlannableFile file = read_plannable(path, source, local);
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
