#include "smp/comm/jobs/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bootstrap/fabric_rendezvous.h"
#include "bootstrap/participant.h"
#include "bootstrap/regroup.h"
#include "bootstrap/shm_rendezvous.h"
#include "groups/rank_context.h"
#include "jobs/host_watch.h"
#include "jobs/socket_watch.h"
#include "net/network_endpoint.h"
#include "segment/shared_job.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

namespace smp::jobs {
namespace {

groups::HostTopology topology_of(const std::vector<bootstrap::PeerAddress>& peers) {
  groups::HostTopology topology;
  std::vector<std::string> identities;
  for (const bootstrap::PeerAddress& peer_address : peers) {
    const auto known = std::find(identities.begin(), identities.end(), peer_address.host_identity);
    topology.host_of.push_back(int(known - identities.begin()));
    if (known != identities.end()) continue;
    identities.push_back(peer_address.host_identity);
    topology.hosts.push_back(peer_address.host_name);
  }
  return topology;
}

class RegroupHosts final : public bootstrap::Regroup {
 public:
  RegroupHosts(const bootstrap::Participant& self, const net::FabricOptions& options,
               std::vector<bootstrap::PeerAddress> peers, system::FileDescriptor listener)
      : bootstrap::Regroup(self, std::move(listener)),
        options_(options),
        addresses_(std::move(peers)) {}

 private:
  ConnectAttempt attempt_connect(int rank, sockets::Deadline deadline) override {
    const bootstrap::PeerAddress& peer_address = addresses_[size_t(rank)];
    ConnectAttempt attempt;
    int error = 0;
    attempt.socket = sockets::try_connect_tcp(peer_address.address, peer_address.listener_port,
                                              deadline, &error);
    attempt.is_gone = error == ECONNREFUSED;
    return attempt;
  }
  RendezvousAddress rendezvous_address() override {
    const bootstrap::PeerAddress& own = addresses_[size_t(options_.rank)];
    return {own.address, own.listener_port};
  }
  std::unique_ptr<comm::Communicator> start_job(const NextJob& next) override {
    net::FabricOptions options = options_;
    options.rank = next.rank;
    options.size = next.size;
    options.job_id = next.job_id;
    options.master_address = next.address.address;
    options.master_port = next.address.port;
    options.rendezvous_timeout = next.limit;
    options.listening = nullptr;  // the process that was told this port may be gone
    return connect_fabric(options);
  }

  const net::FabricOptions options_;
  const std::vector<bootstrap::PeerAddress> addresses_;
};

}  // namespace

std::unique_ptr<comm::Communicator> connect_fabric(const net::FabricOptions& options) {
  const bootstrap::Participant self{
      {options.rank, options.size, options.job_id, options.job_key},
      options.rendezvous_timeout.value_or(options.timeout),
      fmt::format(" at {} port {}", options.master_address, options.master_port)};
  self.check(mesh::kMaxRanksOfHosts, "");
  bootstrap::FabricRendezvous hosts = bootstrap::fabric_rendezvous(self, options);
  groups::HostTopology topology = topology_of(hosts.peers);
  std::vector<int> here;
  for (int rank = 0; rank < options.size; ++rank)
    if (topology.host_of[size_t(rank)] == topology.host_of[size_t(options.rank)])
      here.push_back(rank);
  topology.ranks_here = int(here.size());
  topology.exchange = options.exchange;
  topology.threads = options.threads;

  bootstrap::Participant self_here = self;
  self_here.rendezvous_address.clear();
  bootstrap::ShmRendezvous rendezvous =
      bootstrap::shm_rendezvous(self_here, here, topology.spans_hosts());
  topology.processes_here = bootstrap::processes_of(rendezvous.peers);
  auto job = std::make_shared<segment::SharedJob>(std::move(rendezvous.mapping), options.size);
  job->set_doorbells(std::move(rendezvous.doorbells));
  // Later than the watches of processes and hosts, which know a better reason for the silence.
  const auto silence = options.silence + std::chrono::milliseconds(500);
  auto endpoint = topology.spans_hosts()
                      ? std::make_unique<net::NetworkEndpoint>(std::move(hosts.network.transport),
                                                               options.rank, hosts.secret, silence)
                      : nullptr;
  if (endpoint) topology.exchange.takes_any_memory = endpoint->takes_any_memory();
  auto context = std::make_shared<groups::RankContext>(job, options.rank, options.timeout,
                                                       std::move(topology), std::move(endpoint));
  context->watches.push_back(
      std::make_unique<SocketWatch>(job, options.rank, std::move(rendezvous.peers)));
  context->regroup =
      std::make_unique<RegroupHosts>(self, options, hosts.peers, std::move(hosts.listener));
  context->watches.push_back(std::make_unique<HostWatch>(
      *context, std::move(hosts.peers), std::move(hosts.sockets), options.silence));
  return groups::make_world(std::move(context));
}

}  // namespace smp::jobs
