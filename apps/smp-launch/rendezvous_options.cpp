#include "rendezvous_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <utility>

#include "command_line.h"
#include "host_options.h"
#include "option_values.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/reach/rendezvous.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"

namespace smp {
RendezvousOptions::RendezvousOptions(CLI::App& app, request::RendezvousRequest& request)
    : request_(request) {
  app.add_option("--nnodes", nnodes_,
                 "number of hosts of a job whose hosts each start smp-launch, by hand or by a "
                 "scheduler, with the same options except --node-rank; host 0 leads")
      ->type_name("N");
  app.add_option("--node-rank", node_rank_, "number of this host, from 0 (with --nnodes)")
      ->type_name("K");
  app.add_option("--rendezvous", request.endpoint,
                 "address and free port of host 0, as in 10.0.0.1:29400 (with --nnodes); with "
                 "--via srun or mpirun: of this host, for the agents to connect to")
      ->type_name("HOST:PORT");
  app.add_option("--key-file", request.key_file,
                 "file that holds the same secret on all hosts (with --nnodes)")
      ->type_name("FILE");
  app.add_option("--inside", inside_,
                 "join the smp-launch processes that mpirun has started, one for each rank, into "
                 "one job (several hosts need --rendezvous and --key-file)")
      ->type_name("mpirun");
}

void RendezvousOptions::read_numbers() {
  if (!nnodes_.empty()) {
    const std::optional<int64_t> nnodes = whole_number(nnodes_);
    if (!nnodes || *nnodes < 1 || *nnodes > hosts::kMostHosts)
      throw request::UsageError(
          fmt::format("--nnodes '{}': expected a number of hosts, as in --nnodes 4", nnodes_));
    request_.nnodes = static_cast<int>(*nnodes);
  }
  if (!node_rank_.empty() && request_.wanted()) {
    const std::optional<int64_t> rank = whole_number(node_rank_);
    if (!rank || *rank < 0 || *rank >= request_.nnodes)
      throw request::UsageError(
          fmt::format("--node-rank '{}': the {} hosts have numbers from 0 to {}", node_rank_,
                      request_.nnodes, request_.nnodes - 1));
    request_.node_rank = static_cast<int>(*rank);
  }
}

void RendezvousOptions::read_mpi(bool prints) {
  std::optional<schedulers::MpiRank> outer;
  try {
    outer = schedulers::rank_in_mpi(environment::own_environment());
  } catch (const ConfigError& error) {
    throw request::UsageError(error.what());
  }
  if (inside_.empty()) {
    if (outer && outer->size > 1 && !prints && !request_.wanted())
      throw request::UsageError(
          fmt::format("mpirun has started {} smp-launch processes: give --inside mpirun to join "
                      "them into one job",
                      outer->size));
    return;
  }
  if (inside_ != request::kMpirun)
    throw request::UsageError(fmt::format("--inside '{}': expected mpirun", inside_));
  if (!nnodes_.empty() || !node_rank_.empty())
    throw request::UsageError(
        "--inside mpirun gets the hosts from mpirun: leave --nnodes and --node-rank out");
  if (!outer)
    throw request::UsageError(
        "--inside mpirun: mpirun has not started this process: neither OMPI_COMM_WORLD_RANK nor "
        "PMI_RANK is set");
  if (outer->local_rank != 0) throw Information{""};  // the first one of a host stands for all
  schedulers::clear_mpi_environment();
  request_.ranks = outer->size;
  if (outer->local_size == outer->size) return;
  if (outer->size % outer->local_size != 0)
    throw request::UsageError(
        fmt::format("--inside mpirun: {} ranks in all, {} on this host: start the same number of "
                    "ranks on every host",
                    outer->size, outer->local_size));
  request_.nnodes = outer->size / outer->local_size;
  request_.node_rank = outer->rank;
  request_.slots = outer->local_size;
}

// The numbers of the pod's operator were read before and count. The user's fill in those that it
// does not give.
void RendezvousOptions::read_pod_numbers() {
  const int pods = request_.nnodes, order = request_.node_rank;
  if (!node_rank_.empty())
    throw request::UsageError(
        "--hosts k8s gets the number of this pod from the cluster: leave --node-rank out");
  if (pods == 0 && nnodes_.empty())
    throw request::UsageError(
        "--hosts k8s: the environment of a pod of an indexed job does not have the number of pods: "
        "give --nnodes");
  read_numbers();
  if (pods != 0 && request_.nnodes != pods)
    throw request::UsageError(
        fmt::format("--nnodes gives {} pods, but {} has {}: leave --nnodes out", request_.nnodes,
                    request_.starter, pods));
  if (order >= request_.nnodes)
    throw request::UsageError(fmt::format(
        "--nnodes gives {} pods, but this pod has number {} (from 0): give the number of all pods",
        request_.nnodes, order));
  if (request_.nnodes > 1) return;
  request_.nnodes = 0;  // one pod is this host, where nobody is to be met
  request_.ranks = request_.slots;
  request_.endpoint.clear();
  request_.key_file.clear();
}

void RendezvousOptions::finish(bool prints, bool agents_come) {
  if (request_.pods)
    read_pod_numbers();
  else
    read_numbers();
  read_mpi(prints);
  if (!request_.wanted()) {
    const std::array<std::pair<const char*, bool>, 3> for_hosts = {{
        {"--node-rank", !node_rank_.empty()},
        {"--rendezvous", !request_.endpoint.empty() && inside_.empty() && !agents_come},
        {"--key-file", !request_.key_file.empty() && inside_.empty()},
    }};
    for (const auto& [option, given] : for_hosts) {
      if (given)
        throw request::UsageError(
            fmt::format("{} is for jobs whose hosts each start smp-launch: add --nnodes", option));
    }
    return;
  }
  if (prints) return;
  if (!inside_.empty() && (request_.endpoint.empty() || request_.key_file.empty()))
    throw request::UsageError(
        "--inside mpirun on several hosts needs --rendezvous and --key-file, as in --rendezvous "
        "10.0.0.1:29400 --key-file key");
  if (request_.pods && request_.endpoint.empty())
    throw request::UsageError(
        "--hosts k8s: the address of the first pod does not follow from the name of this pod: give "
        "the job a subdomain (a headless service), or give --rendezvous, as in --rendezvous "
        "gpt-host-0-0.gpt:29400");
  if (request_.pods && request_.key_file.empty())
    throw request::UsageError(
        "--hosts k8s needs --key-file: a secret that all pods mount, as in --key-file "
        "/etc/smp-launch/key");
  if (request_.node_rank < 0 || request_.endpoint.empty() || request_.key_file.empty())
    throw request::UsageError(
        "--nnodes needs --node-rank, --rendezvous and --key-file, as in --nnodes 4 --node-rank 2 "
        "--rendezvous 10.0.0.1:29400 --key-file key");
  try {
    reach::parse_rendezvous_endpoint("--rendezvous", request_.endpoint);
  } catch (const ConfigError& error) {
    throw request::UsageError(error.what());
  }
}

}  // namespace smp
