#include "reach_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/local/binding.h"
#include "smp/launcher/local/local_host.h"
#include "smp/launcher/reach/rendezvous.h"
#include "smp/launcher/request/rank_places.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/text/json.h"

namespace smp::launch {
namespace {

constexpr size_t kMostFlatHosts = 64;  // that this process reaches itself
constexpr int kFanOut = 32;            // above
constexpr int kSampledRanks = 64;      // a second, by default: more would make large files

// The time between samples of usage; 0: no samples.
std::chrono::milliseconds usage_interval(const request::PreparedJob& job) {
  const request::WatchRequest& watch = job.request.watch;
  if (!watch.samples_usage || job.run_dir.empty()) return std::chrono::milliseconds(0);
  const int seconds = std::max(1, job.world_size / kSampledRanks);
  return watch.usage_interval.value_or(std::chrono::seconds(seconds));
}

}  // namespace

job::JobResult interrupted_by(int number) {
  job::JobResult result;
  if (number != 0) {
    result.end = job::JobEnd::kInterrupted;
    result.interrupted_by = number;
    result.exit_code = 128 + number;
  } else {
    result.end = job::JobEnd::kLauncherError;
    result.launcher_error = "smp-launch itself was killed";
    result.exit_code = static_cast<int>(ExitCode::kLauncherError);
  }
  return result;
}

namespace {

reach::RendezvousNode node_of(const request::RendezvousRequest& request) {
  return {request.node_rank, request.slots, request.nnodes};
}

// MASTER_ADDR of ranks on these hosts.
std::string rendezvous_address(const request::PreparedJob& job, const agent::HostGroup& group) {
  const std::string& interface = job.request.hosts.interface;
  const agent::HostFacts first = group.about(0);
  bool one_network = true;
  for (size_t host = 1; host < job.hosts.size(); ++host)
    one_network = one_network && group.about(static_cast<int>(host)).network == first.network;
  if (one_network && interface.empty()) return kLoopback;
  return agent::address_of(job.hosts.front(), first, interface);
}

// The transport to the hosts that have joined the rendezvous.
std::unique_ptr<reach::AgentTransport> met_hosts(const request::PreparedJob& job,
                                                 reach::Rendezvous& rendezvous) {
  std::map<std::string, system::FileDescriptor> channels;
  size_t host = 0;
  for (reach::JoinedNode& arrived : rendezvous.take())
    channels.emplace(job.hosts[++host].name, std::move(arrived.channel));
  return reach::joined_agents_transport(std::move(channels), job.request.hosts.transport.agent);
}

bool uses_gpus(const request::PreparedJob& job) {
  const auto names_some = [](const hosts::HostSpec& host) { return !host.gpus.empty(); };
  return (job.plan && job.plan->job.cluster.device == DeviceKind::kCuda) ||
         std::any_of(job.hosts.begin(), job.hosts.end(), names_some);
}

void warn_of_gpus(const std::string& host, const health::HostHealth& health,
                  const std::vector<int>& gpus, ReachedHosts& reached) {
  for (const health::HealthFinding& finding : health::gpu_findings_of(health.gpu_health, gpus))
    reached.warnings.push_back(fmt::format("host {}: {}: {}", host, finding.name, finding.text));
}

bool asks_health(const request::PreparedJob& job) {
  return uses_gpus(job) || job.request.hosts.sagemaker_variables;
}

// Fills in SageMaker's variables of a host that were not known before it was reached. `names` are
// those of all hosts.
void tell_sagemaker(const health::HostHealth& health, int host,
                    const std::vector<std::string>& names, ReachedHosts& reached) {
  for (environment::RankPlace& place : reached.places) {
    if (place.host != host || !place.sagemaker) continue;
    environment::SageMakerHost& said = *place.sagemaker;
    if (said.hosts.empty()) said.hosts = text::Json(names).dump();
    if (said.current.empty()) said.current = names[static_cast<size_t>(host)];
    if (said.gpus.empty()) said.gpus = std::to_string(health.gpus.size());
  }
}

// Binds the ranks of the next host.
void bind_ranks(const request::PreparedJob& job, const local::CpuTopology& topology,
                ReachedHosts& reached) {
  const size_t first = reached.cpus.size();
  const int ranks = reached.places[first].local_world_size;
  for (auto& bound :
       local::bindings_of(topology, job.request.binding, ranks, reached.places[first].gpus)) {
    // OMP_NUM_THREADS becomes the cores of the rank.
    reached.places[reached.cpus.size()].cpus = ranks * cores_among(topology, bound.cpus);
    reached.cpus.push_back(std::move(bound.cpus));
    reached.next_to.push_back(std::move(bound.next_to));
  }
}

}  // namespace

std::optional<int> lead_to_hosts(const request::PreparedJob& job,
                                 const std::vector<hosts::HostSpec>& hosts, int control_fd,
                                 std::unique_ptr<reach::AgentTransport>& transport) {
  const request::HostRequest& request = job.request.hosts;
  if (!request.starts_all()) {
    transport = reach::make_agent_transport(request.transport);
    return std::nullopt;
  }
  return schedulers::start_all_agents(request, hosts, ending_signals(job), control_fd, transport);
}

agent::HostGroupOptions group_options(const request::HostRequest& request, size_t hosts) {
  agent::HostGroupOptions options;
  options.heartbeat_timeout = request.heartbeat_timeout;
  options.connect_timeout = request.connect_timeout;
  options.transport = request.transport;
  if (request.fan_out)
    options.fan_out = *request.fan_out;
  else if (hosts > kMostFlatHosts && !request.rendezvous.wanted() && !request.starts_all())
    options.fan_out = kFanOut;
  return options;
}

std::vector<agent::SharedFile> shared_files(const request::PreparedJob& job,
                                            const std::string& plan) {
  std::vector<agent::SharedFile> files;
  if (!job.plan) return files;
  if (!plan.empty()) files.push_back(agent::shared_with_content(plan));
  const TrainingSpec& training = job.plan->job.training;
  std::vector<std::string> paths = data::named_data(training);
  paths.push_back(training.init_from);
  for (const std::string& path : paths) {
    const bool relative = std::filesystem::path(path).is_relative();
    if (path.empty() || (relative && !job.request.hosts.push.empty())) continue;
    files.push_back({std::filesystem::absolute(path).string()});
  }
  return files;
}

std::set<int> ending_signals(const request::PreparedJob& job) {
  return job.plan ? job.request.watch.rules.checkpoint_signals : std::set<int>{};
}

std::variant<ReachedHosts, job::JobResult> reach_hosts(const request::PreparedJob& job,
                                                       const environment::ReservedPort& port,
                                                       int control_fd) {
  ReachedHosts reached;
  reached.places = planned_places(job);
  const bool binds = job.request.binding != local::Binding::kNone;
  const request::HostRequest& request = job.request.hosts;
  std::optional<reach::Rendezvous> rendezvous;
  try {
    if (job.hosts.empty()) {
      if (binds) bind_ranks(job, local::own_topology(), reached);
      if (asks_health(job)) {
        const health::HostHealth health = health::own_health();
        if (uses_gpus(job)) warn_of_gpus(health.name, health, {}, reached);
        tell_sagemaker(health, 0, {health.name}, reached);
      }
      auto host = std::make_unique<local::LocalHost>();
      if (const auto every = usage_interval(job); every.count() > 0) host->sample_usage(every);
      reached.host = std::move(host);
      reached.master_address = kLoopback;
      reached.master_port = port.number();
      return reached;
    }
    schedulers::require_allocation(request);
    // Listing many files takes time, and agents without heartbeats for --host-timeout end. So the
    // files are listed before any agent is started.
    const auto files = std::make_shared<agent::FileSource>(agent::files_to_send(request.push));
    if (request.rendezvous.wanted())
      rendezvous.emplace(
          reach::parse_rendezvous_endpoint("--rendezvous", request.rendezvous.endpoint),
          reach::read_key_file(request.rendezvous.key_file));
    if (rendezvous) {
      if (const auto number =
              rendezvous->gather(job.hosts.size() - 1, node_of(request.rendezvous),
                                 request.connect_timeout, control_fd, ending_signals(job)))
        return interrupted_by(*number);
    }
    if (rendezvous) {
      reached.transport = met_hosts(job, *rendezvous);
    } else if (const auto number = lead_to_hosts(job, job.hosts, control_fd, reached.transport)) {
      return interrupted_by(*number);
    }
    agent::HostGroupOptions options = group_options(request, job.hosts.size());
    options.asks_topology = binds;
    options.asks_health = asks_health(job);
    options.ending_signals = ending_signals(job);
    options.usage_interval = usage_interval(job);
    options.runs_here = request.push.empty();
    if (job.plan) options.shared = shared_files(job, run::RunFolder(job.run_dir).plan_to_start());
    auto group = std::make_unique<agent::HostGroup>(job.hosts, *reached.transport, options);
    if (const auto number = group->connect(control_fd)) return interrupted_by(*number);
    if (!request.push.empty()) {
      if (const auto number = group->send_files(files, control_fd)) return interrupted_by(*number);
    }
    std::vector<int> cpus;
    std::vector<std::string> own_names;
    for (size_t i = 0; i < job.hosts.size(); ++i) {
      const agent::HostFacts about = group->about(static_cast<int>(i));
      cpus.push_back(about.cpus);
      own_names.push_back(about.name);
    }
    for (size_t rank = 0; rank < reached.places.size(); ++rank) {
      environment::RankPlace& place = reached.places[rank];
      place.cpus = cpus[static_cast<size_t>(place.host)];
      group->place(static_cast<int>(rank), place.host);
    }
    for (size_t i = 0; binds && i < job.hosts.size(); ++i)
      bind_ranks(job, local::parse_topology(group->about(static_cast<int>(i)).topology), reached);
    for (size_t i = 0; i < job.hosts.size(); ++i) {
      const std::string& name = job.hosts[i].name;
      if (const auto& health = group->about(static_cast<int>(i)).health) {
        if (uses_gpus(job)) warn_of_gpus(name, *health, job.hosts[i].gpus, reached);
        tell_sagemaker(*health, static_cast<int>(i), own_names, reached);
      }
      reached.names.push_back(rendezvous ? fmt::format("{} ({})", name, own_names[i]) : name);
    }
    reached.own_names = rendezvous ? own_names : reached.names;
    reached.master_address = rendezvous && request.interface.empty()
                                 ? rendezvous->address()
                                 : rendezvous_address(job, *group);
    reached.master_port = group->about(0).port;
    reached.host = std::move(group);
  } catch (const std::runtime_error& error) {  // not reached, or no address to meet at
    job::JobResult result;
    result.end = job::JobEnd::kLauncherError;
    if (const auto* unreachable = dynamic_cast<const agent::HostsUnreachable*>(&error)) {
      result.end = job::JobEnd::kHostsUnreachable;
      result.unreachable = unreachable->hosts;
    }
    result.launcher_error = error.what();
    result.exit_code = static_cast<int>(ExitCode::kLauncherError);
    return result;
  }
  return reached;
}

}  // namespace smp::launch
