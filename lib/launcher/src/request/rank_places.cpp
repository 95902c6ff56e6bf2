#include "smp/launcher/request/rank_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "smp/launcher/environment/variables.h"
#include "smp/launcher/request/spares.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::request {
namespace {

// The GPUs of CUDA_VISIBLE_DEVICES; nothing if it is not set.
std::optional<std::vector<std::string>> own_gpus() {
  const auto said =
      environment::value_in(environment::own_environment(), environment::kVisibleGpus);
  if (!said) return std::nullopt;
  std::vector<std::string> gpus;
  std::string_view rest = *said;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    gpus.emplace_back(one);
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  return gpus;
}

std::string host_of(const PreparedJob& job, const environment::RankPlace& place) {
  return job.hosts.empty()
             ? "this host"
             : fmt::format("host '{}'", job.hosts[static_cast<size_t>(place.host)].name);
}

// The GPU of a rank with --visible-gpus one.
std::string only_gpu(const PreparedJob& job, const environment::RankPlace& place,
                     const std::optional<std::vector<std::string>>& own) {
  const auto number = static_cast<size_t>(place.local_rank);
  if (!place.gpus.empty()) return std::to_string(place.gpus[number]);
  if (!own) return std::to_string(place.local_rank);
  if (own->size() < static_cast<size_t>(place.local_world_size))
    throw ConfigError(
        fmt::format("--visible-gpus one: {} has {} ranks, but {}={} has {}: start fewer ranks, or "
                    "unset the variable",
                    host_of(job, place), place.local_world_size, environment::kVisibleGpus,
                    fmt::join(*own, ","), own->size()));
  return (*own)[number];
}

// ["algo-1","algo-2"]
std::string names_json(const PreparedJob& job) {
  auto names = text::Json::array();
  for (const hosts::HostSpec& host : job.hosts) names.push_back(host.name);
  return names.dump();
}

// SageMaker's variables of a rank's host. Those that only the host knows stay empty.
environment::SageMakerHost sagemaker_host(const PreparedJob& job,
                                          const environment::RankPlace& place,
                                          const std::string& all) {
  environment::SageMakerHost host;
  if (job.hosts.empty()) return host;
  const RendezvousRequest& rendezvous = job.request.hosts.rendezvous;
  if (!rendezvous.wanted() || !rendezvous.names.empty()) {  // else they bring their names
    host.hosts = all;
    host.current = job.hosts[static_cast<size_t>(place.host)].name;
  }
  if (!place.gpus.empty()) host.gpus = std::to_string(place.gpus.size());
  return host;
}

}  // namespace

std::vector<environment::RankPlace> planned_places(const PreparedJob& job) {
  std::vector<int> slots;
  for (const hosts::HostSpec& host : job.hosts) slots.push_back(host.slots);
  if (slots.empty()) slots.push_back(job.world_size);
  std::vector<environment::RankPlace> places = environment::places_on(slots);
  const auto own = own_gpus();
  std::optional<mesh::Mesh> mesh;
  if (job.plan) mesh.emplace(job.plan->degrees, job.plan->job.parallel.placement_strategy);
  const int cpus = environment::available_cpus();
  const std::string hosts = names_json(job);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    environment::RankPlace& place = places[rank];
    if (job.hosts.empty())
      place.cpus = cpus;
    else
      place.gpus = job.hosts[static_cast<size_t>(place.host)].gpus;
    const VisibleGpus policy = job.request.hosts.visible_gpus;
    if (policy == VisibleGpus::kOne)
      place.visible_gpus = only_gpu(job, place, own);
    else if (policy == VisibleGpus::kNone)
      place.visible_gpus = "";
    else if (!place.gpus.empty())
      place.visible_gpus = fmt::format("{}", fmt::join(place.gpus, ","));
    if (job.request.hosts.sagemaker_variables) place.sagemaker = sagemaker_host(job, place, hosts);
    if (mesh) place.coordinates = mesh->coord_of(static_cast<int>(rank));
  }
  return places;
}

namespace {

// Throws ConfigError if --visible-gpus one cannot be honoured after a spare has replaced the
// fullest host that it has room for.
void check_gpus_of_spares(const PreparedJob& job) {
  for (const hosts::HostSpec& spare : job.spares) {
    if (!spare.gpus.empty()) continue;  // its own are as many as the ranks that it may get
    PreparedJob replaced = job;
    hosts::HostSpec* fullest = nullptr;
    for (hosts::HostSpec& host : replaced.hosts) {
      if (has_room(spare, host.slots) && (fullest == nullptr || host.slots > fullest->slots))
        fullest = &host;
    }
    if (fullest == nullptr) continue;
    const int slots = fullest->slots;
    *fullest = spare;
    fullest->slots = slots;
    planned_places(replaced);
  }
}

}  // namespace

void check_gpus(const PreparedJob& job) {
  const auto says_gpus = [](const std::string& variable) {
    return variable.substr(0, variable.find('=')) == environment::kVisibleGpus;
  };
  const auto& named = job.request.hosts.forward.named;
  const char* option = job.request.hosts.option_of(environment::kVisibleGpus);
  const bool in_env = std::any_of(named.begin(), named.end(), says_gpus);
  const VisibleGpus policy = job.request.hosts.visible_gpus;
  if (in_env && policy != VisibleGpus::kAllLocal)
    throw ConfigError(
        fmt::format("both {} {} and --visible-gpus choose the GPUs: leave one of the two out",
                    option, environment::kVisibleGpus));
  if (policy == VisibleGpus::kNone && job.plan && job.plan->job.cluster.device == DeviceKind::kCuda)
    throw ConfigError(
        "--visible-gpus none: the plan's ranks run on GPUs (cluster.device: cuda): leave "
        "--visible-gpus out");
  for (const hosts::HostSpec& host : job.hosts) {
    if (!host.gpus.empty() && in_env)
      throw ConfigError(
          fmt::format("both {} {} and gpu= of host '{}' choose the GPUs: leave one of the two out",
                      option, environment::kVisibleGpus, host.name));
    if (!host.gpus.empty() && policy == VisibleGpus::kNone)
      throw ConfigError(fmt::format(
          "--visible-gpus none, but gpu= of host '{}' gives GPUs: leave one of the two out",
          host.name));
  }
  // Checked before there is a run folder. A dry run skips it: the job may run on another machine.
  if (policy == VisibleGpus::kOne && job.request.dry_run == DryRun::kNo) {
    planned_places(job);
    check_gpus_of_spares(job);
  }
}

}  // namespace smp::request
