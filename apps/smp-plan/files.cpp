#include "files.h"

#include <fmt/format.h>

#include "smp/plan/errors.h"
#include "smp/plan/file_kind.h"
#include "smp/plan/job_reader.h"
#include "smp/plan/plan_file.h"
#include "smp/planner/import.h"
#include "smp/planner/search.h"

namespace smp {

Plan plan_of_file(const std::string& path) {
  if (is_plan_file(path)) return read_plan(path);
  const JobSource source = load_job_source(path);
  if (kind_of_text(source.text) == FileKind::kPlan) return parse_plan(path, source.text);
  SearchResult result = plan_job(read_job(with_hf_model(source)));
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(
      fmt::format("{}: no layout fits: {}", path, std::get<Infeasible>(result.best).problem));
}

}  // namespace smp
