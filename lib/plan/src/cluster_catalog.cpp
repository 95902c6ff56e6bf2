#include "smp/plan/cluster_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

#include "smp/plan/errors.h"
#include "smp/plan/suggest.h"

namespace smp {
namespace {

// "p5" is no slip of the keyboard, but the beginning of a name.
std::string beginning_with(std::string_view word) {
  for (const NamedCluster& cluster : named_clusters()) {
    if (word.size() > 1 && cluster.name.starts_with(word)) return std::string(cluster.name);
  }
  return "";
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
  std::string near = nearest(name, names).value_or("");
  if (near.empty()) near = beginning_with(name);
  return fmt::format("unknown cluster '{}'{} There are {}", name,
                     near.empty() ? "." : fmt::format(", did you mean '{}'?", near),
                     fmt::join(names, ", "));
}

JobSource cluster_source(const std::string& name_or_path) {
  const NamedCluster* known = find_cluster(name_or_path);
  std::error_code none;
  const bool is_file = std::filesystem::exists(name_or_path, none);
  if (known != nullptr && !is_file) {
    return {fmt::format("cluster {}", known->name), std::string(known->text)};
  }
  const bool is_path = name_or_path.find('/') != std::string::npos ||
                       name_or_path.ends_with(".yaml") || name_or_path.ends_with(".yml") ||
                       name_or_path.ends_with(".json");
  if (!is_file && !is_path) throw ConfigError(unknown_cluster(name_or_path));
  return load_job_source(name_or_path);
}

}  // namespace smp
