#include "files.h"

#include <fmt/format.h>

#include <filesystem>

#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
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

Plan plan_of_file(const std::string& path) {
  if (files::is_plan_file(path)) return with_framework_file(planfile::read_plan(path));
  const jobfile::JobSource source = jobfile::load_job_source(path);
  if (files::kind_of_text(source.text) == files::FileKind::kPlan)
    return with_framework_file(planfile::parse_plan(path, source.text));
  search::SearchResult result =
      search::plan_job(jobfile::read_job(importers::with_hf_model(source)));
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(fmt::format("{}: no layout fits: {}", path,
                                   std::get<search::Infeasible>(result.best).problem));
}

}  // namespace smp
