#include "smp/plan/jobfile/cluster_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/text/suggest.h"

namespace smp::jobfile {
namespace {

// "p5" is no slip of the keyboard, but how a name begins: the cluster that begins most alike.
std::string beginning_like(std::string_view word) {
  constexpr size_t kLeast = 2;
  std::string_view best;
  size_t most = kLeast - 1;
  for (const NamedCluster& cluster : named_clusters()) {
    const size_t length = std::min(word.size(), cluster.name.size());
    size_t equal = 0;
    while (equal < length && word[equal] == cluster.name[equal]) ++equal;
    if (equal > most) {
      most = equal;
      best = cluster.name;
    }
  }
  return std::string(best);
}

}  // namespace

const NamedCluster* find_cluster(std::string_view name) {
  for (const NamedCluster& cluster : named_clusters()) {
    if (cluster.name == name) return &cluster;
  }
  return nullptr;
}

std::string unknown_cluster(std::string_view name) {
  std::vector<std::string> names;
  for (const NamedCluster& cluster : named_clusters()) names.emplace_back(cluster.name);
  std::string near = text::nearest(name, names).value_or("");
  if (near.empty()) near = beginning_like(name);
  return fmt::format("unknown cluster '{}'{} Known clusters: {}", name,
                     near.empty() ? "." : fmt::format(", did you mean '{}'?", near),
                     fmt::join(names, ", "));
}

JobSource cluster_source(const std::string& name_or_path) {
  const NamedCluster* known = find_cluster(name_or_path);
  std::error_code none;
  const bool is_file = std::filesystem::exists(name_or_path, none);
  if (known != nullptr && !is_file) {
    return {fmt::format("cluster {}", known->name), std::string(known->text), "cluster"};
  }
  const bool is_path = name_or_path.find('/') != std::string::npos ||
                       name_or_path.ends_with(".yaml") || name_or_path.ends_with(".yml") ||
                       name_or_path.ends_with(".json");
  if (!is_file && !is_path) throw ConfigError(unknown_cluster(name_or_path));
  JobSource source = load_job_source(name_or_path);
  if (files::kind_of_text(source.text) == files::FileKind::kPlan) {
    throw ConfigError(fmt::format(
        "{}: this is a plan; name a known cluster, or the file with a cluster section that it was "
        "planned from",
        name_or_path));
  }
  source.replaces = "cluster";
  return source;
}

}  // namespace smp::jobfile
