#include "reach_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "smp/launcher/agent.h"
#include "smp/launcher/binding.h"
#include "smp/launcher/host_group.h"
#include "smp/launcher/local_host.h"
#include "smp/launcher/meeting.h"
#include "smp/plan/exit_code.h"

namespace smp {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

}  // namespace

JobResult interrupted_by(int number) {
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

namespace {

MeetingGuest guest_of(const MeetingRequest& request) {
  return {request.order, request.slots, request.nnodes};
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

// Those that have come to a start by hand.
std::unique_ptr<Transport> met_hosts(const PreparedJob& job, Meeting& meeting) {
  std::map<std::string, FileDescriptor> channels;
  size_t host = 0;
  for (ArrivedGuest& arrived : meeting.take())
    channels.emplace(job.hosts[++host].name, std::move(arrived.channel));
  return meeting_transport(std::move(channels), job.request.hosts.transport.agent);
}

// Binds the ranks of a host, which are the next of the job.
void bind_ranks(const PreparedJob& job, const CpuTopology& topology, ReachedHosts& reached) {
  const size_t first = reached.cpus.size();
  const int ranks = reached.places[first].local_world_size;
  for (auto& cpus : bindings_of(topology, job.request.binding, ranks, reached.places[first].gpus)) {
    // OMP_NUM_THREADS becomes the cores of the rank.
    reached.places[reached.cpus.size()].cpus = ranks * cores_among(topology, cpus);
    reached.cpus.push_back(std::move(cpus));
  }
}

}  // namespace

int join_job(const LaunchRequest& request) {
  const HostRequest& hosts = request.hosts;
  return run_agent(join_meeting(parse_meeting_place("--rendezvous", hosts.meeting.rendezvous),
                                read_key_file(hosts.meeting.key_file), guest_of(hosts.meeting),
                                hosts.connect_timeout));
}

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
  const bool binds = job.request.binding != Binding::kNone;
  const HostRequest& request = job.request.hosts;
  std::optional<Meeting> meeting;
  try {
    if (job.hosts.empty()) {
      if (binds) bind_ranks(job, own_topology(), reached);
      reached.host = std::make_unique<LocalHost>();
      reached.master_address = kLoopback;
      reached.master_port = port.number();
      return reached;
    }
    if (request.meeting.wanted())
      meeting.emplace(parse_meeting_place("--rendezvous", request.meeting.rendezvous),
                      read_key_file(request.meeting.key_file));
    if (meeting) {
      if (const auto number = meeting->gather(job.hosts.size() - 1, guest_of(request.meeting),
                                              request.connect_timeout, control_fd))
        return interrupted_by(*number);
    }
    reached.transport = meeting ? met_hosts(job, *meeting) : make_transport(request.transport);
    auto group = std::make_unique<HostGroup>(
        job.hosts, *reached.transport,
        HostGroupOptions{request.silence, request.connect_timeout, false, binds});
    if (const auto number = group->connect(control_fd)) return interrupted_by(*number);
    std::vector<int> host_of_rank;
    for (RankPlace& place : reached.places) {
      place.cpus = group->about(place.host).cpus;
      host_of_rank.push_back(place.host);
    }
    for (size_t i = 0; binds && i < job.hosts.size(); ++i)
      bind_ranks(job, parse_topology(group->about(static_cast<int>(i)).topology), reached);
    group->place(std::move(host_of_rank));
    for (size_t i = 0; i < job.hosts.size(); ++i) {
      const std::string& name = job.hosts[i].name;
      reached.names.push_back(
          meeting ? fmt::format("{} ({})", name, group->about(static_cast<int>(i)).name) : name);
    }
    reached.master_address =
        meeting && request.interface.empty() ? meeting->address() : meeting_address(job, *group);
    reached.master_port = group->about(0).port;
    reached.host = std::move(group);
  } catch (const std::runtime_error& error) {  // not reached, or no address to meet at
    JobResult result;
    result.end = JobEnd::kLauncherError;
    if (const auto* unreachable = dynamic_cast<const HostsUnreachable*>(&error)) {
      result.end = JobEnd::kHostsUnreachable;
      result.unreachable = unreachable->hosts;
    }
    result.launcher_error = error.what();
    result.exit_code = static_cast<int>(ExitCode::kLauncherError);
    return result;
  }
  return reached;
}

}  // namespace smp
