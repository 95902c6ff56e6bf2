#include "smp/interchange/importers/job_of_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"

namespace smp::importers {
namespace {

constexpr std::string_view kAnyModel =
    "model: {num_layers: 1, hidden_size: 1, num_heads: 1, vocab_size: 2}\n";

std::string job_name_of(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const bool plain = !stem.empty() && std::ranges::all_of(stem, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  return plain ? stem : "imported";
}

bool gives(const std::vector<Imported>& files, auto&& is_given) {
  return std::ranges::any_of(files, [&](const Imported& file) {
    return std::ranges::any_of(file.keys,
                               [&](const ImportedKey& key) { return is_given(key.path); });
  });
}

// Hosts and ranks say how many; everything else of a cluster says of what.
bool names_accelerators(const std::vector<Imported>& files) {
  return gives(files, [](std::string_view key) {
    return key.starts_with("cluster.") && key != "cluster.hosts" &&
           key != "cluster.processes_per_host";
  });
}

JobOfFiles imported_job(const AnyFiles& request, const std::vector<jobfile::JobSource>& foreign,
                        const std::vector<jobfile::JobSource>& own) {
  ImportContext context;
  context.hosts = request.hosts;
  context.processes_per_host = request.processes_per_host;
  context.recipe = request.recipe;
  const std::string& path = foreign.front().path;
  std::vector<jobfile::JobSource> sources = {
      {path, fmt::format("name: \"{}\"\n", job_name_of(path))}};
  if (!request.cluster.empty()) {
    sources.push_back(jobfile::cluster_source(request.cluster));
    const ClusterSpec cluster =
        jobfile::read_job({{"a model", std::string(kAnyModel)}, sources.back()}).cluster;
    context.cluster_hosts = cluster.hosts;
    context.cluster_processes_per_host = cluster.processes_per_host;
  }
  const std::vector<Imported> files = import_sources(foreign, request.format, context);
  JobOfFiles out;
  for (const Imported& file : files) {
    out.warnings.insert(out.warnings.end(), file.warnings.begin(), file.warnings.end());
  }
  const bool has_model =
      gives(files, [](std::string_view key) { return key == "model.num_layers"; });
  const auto unknown =
      std::ranges::find_if(files, [](const Imported& file) { return !file.unknown_model.empty(); });
  if (own.empty() && !has_model && unknown != files.end())
    throw ConfigError(unknown->unknown_model);
  if (own.empty() && !has_model) {
    throw ConfigError(fmt::format(
        "{}: the file gives no sizes of a model: give the model's config.json too, as in --with "
        "config.json",
        path));
  }
  if (own.empty() && request.cluster.empty() && !names_accelerators(files)) {
    throw ConfigError(
        fmt::format("{}: the file does not name the accelerators: give --cluster "
                    "NAME, as in --cluster dgx-h100",
                    path));
  }
  sources.push_back({path + " as a job file", imported_job_yaml(files)});
  for (const jobfile::JobSource& file : own) {
    for (jobfile::JobSource& source : with_hf_model(file)) sources.push_back(std::move(source));
  }
  out.job = jobfile::read_job(sources);
  return out;
}

}  // namespace

JobOfFiles job_of_files(const AnyFiles& files) {
  std::vector<jobfile::JobSource> foreign, own;
  for (const jobfile::JobSource& source : files.sources) {
    const bool is_foreign = files.format || foreign_format(source).has_value();
    (is_foreign ? foreign : own).push_back(source);
  }
  if (!foreign.empty()) return imported_job(files, foreign, own);
  if (!files.recipe.empty()) {
    throw ConfigError("--recipe " + files.recipe +
                      " is for configurations of NeMo and Megatron Bridge, and no file is one");
  }
  std::vector<std::string> overrides;
  if (files.hosts) overrides.push_back(fmt::format("cluster.hosts={}", *files.hosts));
  if (files.processes_per_host) {
    overrides.push_back(fmt::format("cluster.processes_per_host={}", *files.processes_per_host));
  }
  std::vector<jobfile::JobSource> sources;
  for (const jobfile::JobSource& file : own) {
    for (jobfile::JobSource& source : with_hf_model(file)) sources.push_back(std::move(source));
  }
  if (!files.cluster.empty()) sources.push_back(jobfile::cluster_source(files.cluster));
  return {jobfile::read_job(sources, overrides), {}};
}

}  // namespace smp::importers
