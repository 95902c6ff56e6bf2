#include "smp/launcher/schedulers/pod_place.h"

#include <fmt/format.h>
#include <limits.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "smp/launcher/environment/variables.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/plan/base/errors.h"

namespace smp::schedulers {
namespace {

constexpr std::array kHostFileNames = {"OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE",
                                       "HYDRA_HOST_FILE"};
constexpr const char* kIndex = "JOB_COMPLETION_INDEX";
constexpr const char* kNodes = "PET_NNODES";
constexpr const char* kGroupSize = "LWS_GROUP_SIZE";
constexpr int kMostPort = 65535;

using Environment = std::vector<std::string>;

std::string host_file_of(const Environment& environment, const std::string& otherwise) {
  for (const char* name : kHostFileNames) {
    if (const auto file = environment::value_in(environment, name)) return *file;
  }
  std::error_code error;
  return std::filesystem::exists(otherwise, error) ? otherwise : "";
}

PodPlace place_in_trainjob(const Environment& environment) {
  PodPlace place;
  place.source = kNodes;
  place.pods = environment::number_in(environment, kNodes, 1, hosts::kMostHosts);
  place.node_rank = environment::number_in(environment, "PET_NODE_RANK", 0);
  // Else "auto", "cpu" or "gpu", which torchrun counts.
  const std::string ranks = environment::value_in(environment, "PET_NPROC_PER_NODE").value_or("");
  if (!ranks.empty() && ranks.find_first_not_of("0123456789") == ranks.npos)
    place.ranks = environment::number_in(environment, "PET_NPROC_PER_NODE", 1, hosts::kMostSlots);
  place.leader = environment::value_in(environment, "PET_MASTER_ADDR").value_or("");
  if (environment::value_in(environment, "PET_MASTER_PORT"))
    place.port = environment::number_in(environment, "PET_MASTER_PORT", 1, kMostPort);
  return place;
}

PodPlace place_in_group(const Environment& environment) {
  PodPlace place;
  place.source = kGroupSize;
  place.pods = environment::number_in(environment, kGroupSize, 1, hosts::kMostHosts);
  place.node_rank = environment::number_in(environment, "LWS_WORKER_INDEX", 0);
  place.leader = environment::value_in(environment, "LWS_LEADER_ADDRESS").value_or("");
  return place;
}

// "gpt-host-0-3.gpt" leads to "gpt-host-0-0.gpt".
std::string leader_of_indexed(const std::string& own_name, int node_rank) {
  const size_t dot = own_name.find('.');
  const std::string name = own_name.substr(0, dot);
  const std::string end = fmt::format("-{}", node_rank);
  if (!name.ends_with(end) || dot == own_name.npos) return "";  // a pod without a subdomain
  return fmt::format("{}-0{}", name.substr(0, name.size() - end.size()), own_name.substr(dot));
}

PodPlace place_in_indexed_job(const Environment& environment, const std::string& own_name) {
  PodPlace place;
  place.source = kIndex;
  place.node_rank = environment::number_in(environment, kIndex, 0);
  place.leader = leader_of_indexed(own_name, place.node_rank);
  return place;
}

void check_order(const PodPlace& place) {
  if (place.node_rank >= place.pods)
    throw ConfigError(fmt::format("{} is {}, but this pod has number {}, from 0", place.source,
                                  place.pods, place.node_rank));
}

// Of two operators one is inside the other, and they say the same.
void check_same(const char* what, const PodPlace& a, int number, const PodPlace& b, int other) {
  if (number != other)
    throw ConfigError(fmt::format(
        "{} gives {} as {}, but {} gives {}: unset the variable that is not of this job", a.source,
        what, number, b.source, other));
}

}  // namespace

PodPlace pod_place(const Environment& environment, const std::string& own_name,
                   const std::string& mpi_host_file) {
  if (const std::string file = host_file_of(environment, mpi_host_file); !file.empty()) {
    PodPlace place;
    place.source = place.host_file = file;
    return place;
  }
  std::optional<PodPlace> place;
  if (environment::value_in(environment, kNodes)) place = place_in_trainjob(environment);
  if (environment::value_in(environment, kGroupSize)) {
    const PodPlace group = place_in_group(environment);
    if (place) {
      check_same("the number of pods", *place, place->pods, group, group.pods);
      check_same("this pod's number", *place, place->node_rank, group, group.node_rank);
    }
    if (!place) place = group;
  }
  if (place) check_order(*place);
  if (environment::value_in(environment, kIndex)) {
    const PodPlace indexed = place_in_indexed_job(environment, own_name);
    if (place)
      check_same("this pod's number", *place, place->node_rank, indexed, indexed.node_rank);
    if (!place) place = indexed;
  }
  if (!place)
    throw ConfigError(fmt::format(
        "this is not a pod of a TrainJob ({}), LeaderWorkerSet ({}), JobSet or indexed job ({}) or "
        "MPIJob's launcher ('{}'): neither the variables are set nor the file exists",
        kNodes, kGroupSize, kIndex, mpi_host_file));
  return *place;
}

std::string own_full_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  addrinfo wanted{};
  wanted.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.data(), nullptr, &wanted, &found) != 0) return name.data();
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  return found->ai_canonname == nullptr ? name.data() : found->ai_canonname;
}

}  // namespace smp::schedulers
