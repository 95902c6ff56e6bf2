#include "smp/launcher/launch/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/launch/programs.h"
#include "smp/launcher/request/rank_places.h"
#include "smp/launcher/request/spares.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"

namespace smp::launch {
namespace {

constexpr const char* kWorker = "smp-worker";
constexpr size_t kMostJoinedNodes = 1024;  // each has a connection to the host that leads

// The hosts of a rendezvous, with their names if they have any yet.
std::vector<hosts::HostSpec> coming_hosts(const request::RendezvousRequest& rendezvous) {
  std::vector<hosts::HostSpec> hosts(static_cast<size_t>(rendezvous.nnodes));
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = rendezvous.names.empty() ? fmt::format("node{}", i) : rendezvous.names[i];
    hosts[i].slots = rendezvous.slots;
  }
  return hosts;
}

// The hosts that --hosts or --hostfile names, or a scheduler.
std::vector<hosts::HostSpec> named_hosts(const request::HostRequest& request) {
  if (auto allocated = schedulers::allocated_hosts(request)) return std::move(*allocated);
  if (request.hosts.empty())
    return hosts::parse_host_file(request.hostfile,
                                  files::read_text_file(request.hostfile, "host file"));
  return hosts::parse_hosts(request.hosts);
}

// The hosts that the user names, each with the ranks that it takes.
std::vector<hosts::HostSpec> hosts_of(const request::LaunchRequest& request,
                                      const std::optional<Plan>& plan,
                                      std::vector<hosts::HostSpec>& spares, std::string& order) {
  const request::HostRequest& said = request.hosts;
  if (!said.several()) return {};
  std::vector<hosts::HostSpec> hosts =
      said.rendezvous.wanted() ? coming_hosts(said.rendezvous) : named_hosts(said);
  if (!said.exclude.empty()) hosts = hosts::without_hosts(std::move(hosts), said.exclude);
  spares = request::take_spares(hosts, request.watch.spares);
  order = schedulers::order_hosts(hosts, said, request.dry_run == request::DryRun::kNo);
  hosts::WantedRanks wanted;
  wanted.world_size = request.ranks;
  if (plan) {
    wanted.hosts = static_cast<int>(plan->job.cluster.hosts);
    wanted.processes_per_host = static_cast<int>(plan->job.cluster.processes_per_host);
  }
  hosts::settle_slots(hosts, wanted);
  if ((said.rendezvous.wanted() || said.transport.via == request::kMpirun) &&
      hosts.size() > kMostJoinedNodes)
    throw ConfigError(fmt::format(
        "{} hosts: at most {} hosts can each start smp-launch: name the hosts with --hosts",
        hosts.size(), kMostJoinedNodes));
  if (hosts::slots_of(hosts) > request::kMostRanks)
    throw ConfigError(
        fmt::format("{} ranks: a job has at most {}", hosts::slots_of(hosts), request::kMostRanks));
  return hosts;
}

}  // namespace

request::PreparedJob prepare(const request::LaunchRequest& request) {
  request::PreparedJob job;
  job.request = request;
  job.run_dir = request.run_dir;
  if (job.request.hosts.transport.agent.empty()) job.request.hosts.transport.agent = own_program();
  // A variable of --env that is not set is an error before any host is reached.
  if (request.dry_run == request::DryRun::kNo)
    environment::named_variables(environment::own_environment(), request.hosts.forward.named);
  if (!request.plan.empty()) job.plan = planfile::read_plan(request.plan);
  if (job.plan) {
    for (const std::string& path : data::named_data(job.plan->job.training))
      files::remember_input(path);
  }
  job.hosts = hosts_of(request, job.plan, job.spares, job.host_order);
  if (job.plan)
    job.world_size = static_cast<int>(job.plan->degrees.world());
  else
    job.world_size = job.hosts.empty() ? std::max(1, request.ranks)
                                       : static_cast<int>(hosts::slots_of(job.hosts));
  check_gpus(job);
  if (!job.plan) {
    job.command = request.program;
    return job;
  }
  if (const int outer = request.hosts.rendezvous.ranks;
      outer != 0 && outer != job.world_size &&
      (!request.hosts.sagemaker || request.hosts.rendezvous.slots != 0))
    throw ConfigError(fmt::format(
        "the plan has {} ranks, but {} has started {}: start as many ranks as the plan has",
        job.world_size, request.hosts.rendezvous.starter, outer));
  job.command = {own_folder() + "/" + kWorker};
  // The printed text has no time of the day, so that it is the same every time.
  const bool prints = request.dry_run == request::DryRun::kText ||
                      request.dry_run == request::DryRun::kRanks ||
                      request.dry_run == request::DryRun::kJson;
  if (job.run_dir.empty() && prints)
    job.run_dir = fmt::format("runs/{}-<time>", job.plan->job.name);
  if (request.resume == request::kResumeIfAny &&
      (prints || request.dry_run == request::DryRun::kNo)) {
    job.goes_on_if_any = true;
    job.request.resume = run::RunFolder(job.run_dir).checkpoint().empty() ? "" : "latest";
  }
  return job;
}

}  // namespace smp::launch
