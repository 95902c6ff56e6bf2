#include "files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "smp/plan/errors.h"
#include "smp/plan/job_reader.h"
#include "smp/planner/import.h"
#include "smp/planner/search.h"

namespace smp {
namespace {

// Job files have no such key.
bool is_plan(const std::string& text) {
  return text.rfind("smp_plan:", 0) == 0 || text.find("\nsmp_plan:") != std::string::npos;
}

// A plan says what it is in its first lines, and may be larger than any job file. Of what is no
// file (a pipe), nothing: its bytes can be read only once.
std::string head_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string head(1024, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

}  // namespace

bool is_plan_file(const std::string& path) { return is_plan(head_of(path)); }

Plan plan_of_file(const std::string& path) {
  if (is_plan(head_of(path))) return read_plan(path);
  const JobSource source = load_job_source(path);
  if (is_plan(source.text)) return parse_plan(path, source.text);
  SearchResult result = plan_job(read_job(with_hf_model(source)));
  if (Plan* plan = std::get_if<Plan>(&result.best)) return std::move(*plan);
  throw NoFeasiblePlan(
      fmt::format("{}: no layout fits: {}", path, std::get<Infeasible>(result.best).problem));
}

}  // namespace smp
