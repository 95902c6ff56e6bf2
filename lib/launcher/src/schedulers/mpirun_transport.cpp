#include "smp/launcher/schedulers/mpirun_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>

#include "reach/host_addresses.h"
#include "smp/launcher/agent/agent.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/process/descendants.h"
#include "smp/launcher/process/process_end.h"
#include "smp/launcher/schedulers/mpi_rank.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/random_hex.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

namespace smp::schedulers {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kForAgentToCome{30'000};

// The address from which this host reaches `host`; "" if it does not know the name.
std::string own_address_towards(const std::string& host) {
  try {
    return sockets::local_address_towards(host);
  } catch (const std::runtime_error&) {
    return "";
  }
}

reach::RendezvousEndpoint place_for(const std::vector<hosts::HostSpec>& hosts,
                                    const std::string& at) {
  if (!at.empty()) return reach::parse_rendezvous_endpoint("--rendezvous", at);
  std::string unknown, own;  // the first of each
  for (const hosts::HostSpec& host : hosts) {
    const std::string address = own_address_towards(host.name);
    // Many a host has its own name at 127.0.1.1, where no other one would find it.
    if (!address.empty() && (hosts.size() == 1 || !reach::is_loopback(address)))
      return {address, 0};
    std::string& first = address.empty() ? unknown : own;
    if (first.empty()) first = host.name;
  }
  throw ConfigError(
      fmt::format("--via mpirun: no address for the agents to connect to, because '{}' is {}: give "
                  "an address of this host, as in --rendezvous 10.0.0.1:29400",
                  unknown.empty() ? own : unknown,
                  unknown.empty() ? "known on this host only by a loopback address"
                                  : "a name that this host cannot resolve"));
}

// MPICH's mpirun, and Intel's, are Hydra, which has words of its own. One that cannot be asked is
// not started either, which tells why.
bool is_hydra() {
  FILE* const pipe = popen("timeout 10 mpirun --version 2>&1", "re");
  if (pipe == nullptr) return false;
  std::string text;
  std::array<char, 4096> bytes;
  while (const size_t size = fread(bytes.data(), 1, bytes.size(), pipe))
    text.append(bytes.data(), size);
  pclose(pipe);
  return text.find("HYDRA") != text.npos || text.find("Intel(R) MPI") != text.npos;
}

const std::vector<hosts::HostSpec>& with_names_alone(const std::vector<hosts::HostSpec>& hosts) {
  for (const hosts::HostSpec& host : hosts) {
    if (!host.user.empty() || host.port != 0)
      throw ConfigError(
          fmt::format("--via mpirun takes host names only: set the user and the port of host '{}' "
                      "in ssh's configuration",
                      host.name));
  }
  return hosts;
}

}  // namespace

MpirunTransport::MpirunTransport(const std::vector<hosts::HostSpec>& hosts,
                                 const AllHostsOptions& options)
    : AllHostsTransport("mpirun", with_names_alone(hosts), options,
                        reach::Rendezvous(place_for(hosts, options.at), make_rendezvous_key())),
      is_hydra_(is_hydra()) {}

std::string MpirunTransport::place() const {
  const bool is_v6 = rendezvous().address().find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", rendezvous().address(), is_v6 ? "]" : "",
                     rendezvous().port());
}

// Open MPI numbers processes as it likes where it chooses their hosts, so each host has a context
// of its own, whose agent is told its place. What mpirun is told counts for one context alone, or
// for all where the first one says it: all say it. Hydra has contexts too, but takes hosts, in
// order, and all else for the whole job alone.
job::Command MpirunTransport::command_for(const hosts::HostSpec&) const {
  const std::vector<std::string> arguments =
      hosts::words_of_command("--mpirun-args", options().arguments);
  std::vector<std::string> words = {"mpirun"};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (is_hydra_) {
    std::vector<std::string> names;
    for (const hosts::HostSpec& host : hosts()) names.push_back(host.name + ":1");
    add(arguments);
    add({"-genvlist", kRendezvousKey, "-hosts", fmt::format("{}", fmt::join(names, ","))});
  }
  for (size_t i = 0; i < hosts().size(); ++i) {
    if (i > 0) words.emplace_back(":");
    if (!is_hydra_) add(arguments);
    add({"-n", "1"});
    if (!is_hydra_)
      add({"--host", hosts()[i].name + ":1", "--bind-to", "none", "-x", kRendezvousKey});
    add({options().agent, "--agent", "--meet", place(), "--node-rank", std::to_string(i)});
  }
  return {words,
          environment::merged_environment(environment::own_environment(),
                                          {fmt::format("{}={}", kRendezvousKey, key())}),
          ""};
}

void MpirunTransport::are_missing(const std::vector<std::string>& missing, bool is_over) {
  if (!is_over)
    throw std::runtime_error(fmt::format("mpirun ended before {} of {} agents had connected: {}",
                                         missing.size(), hosts().size(), words()));
  const size_t shown = std::min(missing.size(), kListedHosts);
  throw agent::HostsUnreachable(
      fmt::format("{} of {} hosts: no agent connected to {} within {}: {}{}; mpirun: {}",
                  missing.size(), hosts().size(), place(), hosts::duration_text(options().time),
                  fmt::join(missing.begin(), missing.begin() + static_cast<long>(shown), ", "),
                  missing.size() > shown ? ", ..." : "", words()),
      missing);
}

int run_agent_of_mpirun(const std::string& place, int64_t node_rank) {
  const std::vector<std::string> environment = environment::own_environment();
  const std::optional<MpiRank> outer = rank_in_mpi(environment);
  const std::optional<std::string> key = take_rendezvous_key();
  if (!outer || !key || node_rank < 0 || node_rank >= outer->size)
    throw ConfigError("--agent --meet is for mpirun, as smp-launch --via mpirun starts it");
  clear_mpi_environment();
  return agent::run_agent(
      reach::join_rendezvous(reach::parse_rendezvous_endpoint("--meet", place), *key,
                             {static_cast<int>(node_rank), 0, outer->size}, kForAgentToCome));
}

}  // namespace smp::schedulers
