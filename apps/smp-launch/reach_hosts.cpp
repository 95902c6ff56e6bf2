#include "reach_hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/launcher/host_group.h"
#include "smp/launcher/local_host.h"
#include "smp/plan/exit_code.h"

namespace smp {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// A signal to smp-launch, or its death (0), came while it waited for the agents.
JobResult interrupted(int number) {
  JobResult result;
  if (number != 0) {
    result.end = JobEnd::kInterrupted;
    result.interrupted_by = number;
    result.exit_code = 128 + number;
  } else {
    result.end = JobEnd::kLauncherError;
    result.launcher_error = "smp-launch itself was killed";
    result.exit_code = static_cast<int>(ExitCode::kLauncherError);
  }
  return result;
}

// Where the ranks meet, when they run on these hosts.
std::string meeting_address(const PreparedJob& job, const HostGroup& group) {
  const std::string& interface = job.request.hosts.interface;
  const HostFacts first = group.about(0);
  bool one_network = true;
  for (size_t host = 1; host < job.hosts.size(); ++host)
    one_network = one_network && group.about(static_cast<int>(host)).network == first.network;
  if (one_network && interface.empty()) return kLoopback;
  return address_of(job.hosts.front(), first, interface);
}

}  // namespace

std::vector<RankPlace> planned_places(const PreparedJob& job) {
  if (job.hosts.empty()) {
    std::vector<RankPlace> places = places_on({job.world_size});
    const int cpus = available_cpus();
    for (RankPlace& place : places) place.cpus = cpus;
    return places;
  }
  std::vector<int> slots;
  for (const HostSpec& host : job.hosts) slots.push_back(host.slots);
  std::vector<RankPlace> places = places_on(slots);
  for (RankPlace& place : places) place.gpus = job.hosts[static_cast<size_t>(place.host)].gpus;
  return places;
}

std::variant<ReachedHosts, JobResult> reach_hosts(const PreparedJob& job, const ReservedPort& port,
                                                  int control_fd) {
  ReachedHosts reached;
  reached.places = planned_places(job);
  if (job.hosts.empty()) {
    reached.host = std::make_unique<LocalHost>();
    reached.master_address = kLoopback;
    reached.master_port = port.number();
    return reached;
  }
  const HostRequest& request = job.request.hosts;
  reached.transport = make_transport(request.transport);
  try {
    auto group = std::make_unique<HostGroup>(
        job.hosts, *reached.transport, HostGroupOptions{request.silence, request.connect_timeout});
    if (const auto number = group->connect(control_fd)) return interrupted(*number);
    std::vector<int> host_of_rank;
    for (RankPlace& place : reached.places) {
      place.cpus = group->about(place.host).cpus;
      host_of_rank.push_back(place.host);
    }
    group->place(std::move(host_of_rank));
    for (const HostSpec& host : job.hosts) reached.names.push_back(host.name);
    reached.master_address = meeting_address(job, *group);
    reached.master_port = group->about(0).port;
    reached.host = std::move(group);
  } catch (const std::runtime_error& error) {  // not reached, or no address to meet at
    JobResult result;
    result.end = JobEnd::kLauncherError;
    result.launcher_error = error.what();
    result.exit_code = static_cast<int>(ExitCode::kLauncherError);
    return result;
  }
  return reached;
}

}  // namespace smp
