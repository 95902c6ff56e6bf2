#include "smp/launcher/request/rank_preview.h"

#include <algorithm>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/request/job_variables.h"
#include "smp/launcher/request/rank_places.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/env/environment.h"

namespace smp::request {
namespace {

constexpr const char* kOmpThreads = "OMP_NUM_THREADS";  // from the CPUs of a host

bool contains(const Variables& all, const std::pair<std::string, std::string>& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

RankPreview preview_of(const PreparedJob& job, const environment::RankPlace& place, int rank) {
  const std::optional<run::RunFolder> folder =
      job.run_dir.empty() ? std::nullopt : std::optional<run::RunFolder>(job.run_dir);
  environment::JobVariables shared = job_variables(job, folder ? &*folder : nullptr);
  std::vector<std::string> names;
  for (const hosts::HostSpec& host : job.hosts) names.push_back(host.name);
  const bool is_known = names.empty() || !job.request.hosts.rendezvous.wanted();
  shared.host_names = is_known ? environment::host_names_of(names) : kDrawnAtStart;
  shared.job_id = kDrawnAtStart;
  shared.job_key = kSecret;
  std::string error_file;
  if (folder) {
    if (job.plan) shared.plan = folder->plan();
    error_file = folder->files_of(rank).error_file;
  }
  RankPreview preview;
  preview.place = place;
  std::vector<std::string> variables = environment::variables_of_rank(
      shared, place, rank, error_file, environment::own_environment());
  if (job.request.comm_timeout)
    variables.push_back(comm_timeout_variable(*job.request.comm_timeout));
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool drawn = name == env::kMasterPort ||
                       (!job.hosts.empty() && (name == env::kMasterAddr || name == kOmpThreads)) ||
                       (environment::is_of_sagemaker(name) && equals + 1 == variable.size());
    preview.environment.emplace_back(name, drawn ? kDrawnAtStart : variable.substr(equals + 1));
  }
  preview.coordinates = place.coordinates;
  return preview;
}

}  // namespace

std::vector<RankPreview> previews_of(const PreparedJob& job) {
  const std::vector<environment::RankPlace> places = planned_places(job);
  std::vector<RankPreview> previews;
  for (int rank = 0; rank < job.world_size; ++rank)
    previews.push_back(preview_of(job, places[static_cast<size_t>(rank)], rank));
  return previews;
}

std::vector<RankPreview> previews_with_named(const PreparedJob& job) {
  const std::vector<std::string>& named = job.request.hosts.forward.named;
  environment::named_variables(environment::own_environment(), named);
  std::vector<RankPreview> previews = previews_of(job);
  for (const std::string& variable : named) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const std::string value = environment::looks_secret(name) ? kSecret
                              : equals == variable.npos       ? kOfThisProcess
                                                              : variable.substr(equals + 1);
    for (RankPreview& preview : previews) {
      std::erase_if(preview.environment, [&](const auto& one) {  // OMP_NUM_THREADS, or named twice
        return one.first == name;
      });
      preview.environment.emplace_back(name, value);
    }
  }
  return previews;
}

Variables shared_variables(const std::vector<RankPreview>& previews) {
  Variables shared;
  if (previews.size() < 2) return shared;
  for (const auto& variable : previews.front().environment) {
    if (std::all_of(previews.begin(), previews.end(),
                    [&](const auto& preview) { return contains(preview.environment, variable); }))
      shared.push_back(variable);
  }
  return shared;
}

Variables own_variables(const RankPreview& preview, const Variables& shared) {
  Variables own;
  for (const auto& variable : preview.environment) {
    if (!contains(shared, variable)) own.push_back(variable);
  }
  return own;
}

}  // namespace smp::request
