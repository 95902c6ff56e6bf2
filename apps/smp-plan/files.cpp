#include "files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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

void write_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  // A device or a pipe is written to, not replaced; of a link, what it points to is replaced.
  const bool replaced = !fs::exists(status) || fs::is_regular_file(status);
  const std::string target = fs::is_symlink(path, none) && fs::is_regular_file(status)
                                 ? fs::canonical(path, none).string()
                                 : path;
  const std::string unfinished =
      replaced ? fmt::format("{}.{}.unfinished", target, getpid()) : target;
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary);
  file << text;
  file.close();
  if (file && (!replaced || std::rename(unfinished.c_str(), target.c_str()) == 0)) return;
  const std::string reason = std::strerror(errno);
  if (replaced) std::remove(unfinished.c_str());
  throw ConfigError(fmt::format("{}: cannot be written: {}", path, reason));
}

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
