#include "files.h"

#include <fmt/format.h>

#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/search/search.h"

namespace smp {

Plan plan_of_file(const std::string& path) {
  if (files::is_plan_file(path)) return planfile::read_plan(path);
  const jobfile::JobSource source = jobfile::load_job_source(path);
  if (files::kind_of_text(source.text) == files::FileKind::kPlan)
    return planfile::parse_plan(path, source.text);
  search::SearchResult result =
      search::plan_job(jobfile::read_job(importers::with_hf_model(source)));
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(fmt::format("{}: no layout fits: {}", path,
                                   std::get<search::Infeasible>(result.best).problem));
}

}  // namespace smp
