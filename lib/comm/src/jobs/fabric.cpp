#include "smp/comm/jobs/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bootstrap/handshake.h"
#include "bootstrap/host_meeting.h"
#include "bootstrap/regroup.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_socket.h"
#include "groups/seat.h"
#include "jobs/host_watch.h"
#include "jobs/socket_watch.h"
#include "net/port.h"
#include "segment/job.h"

namespace smp::jobs {
namespace {

groups::Fleet fleet_of(const std::vector<bootstrap::Card>& cards) {
  groups::Fleet fleet;
  std::vector<std::string> identities;
  for (const bootstrap::Card& card : cards) {
    const auto known = std::find(identities.begin(), identities.end(), card.host_identity);
    fleet.host_of.push_back(int(known - identities.begin()));
    if (known != identities.end()) continue;
    identities.push_back(card.host_identity);
    fleet.hosts.push_back(card.host_name);
  }
  return fleet;
}

class RegroupHosts final : public bootstrap::Regroup {
 public:
  RegroupHosts(const bootstrap::Participant& self, const net::FabricOptions& options,
               std::vector<bootstrap::Card> cards, waiting::Descriptor door)
      : bootstrap::Regroup(self, std::move(door)), options_(options), cards_(std::move(cards)) {}

 private:
  Knock knock(int rank, bootstrap::Deadline deadline) override {
    const bootstrap::Card& card = cards_[size_t(rank)];
    Knock door;
    door.socket = bootstrap::try_connect_tcp(card.address, card.door, deadline, &door.is_gone);
    return door;
  }
  Place place() override {
    const bootstrap::Card& own = cards_[size_t(options_.rank)];
    return {own.address, own.door};
  }
  std::unique_ptr<comm::Communicator> begin(const Beginning& beginning) override {
    net::FabricOptions options = options_;
    options.rank = beginning.rank;
    options.size = beginning.size;
    options.job_id = beginning.job_id;
    options.master_address = beginning.place.address;
    options.master_port = beginning.place.port;
    options.meeting_timeout = beginning.limit;
    options.listening = nullptr;  // whom it told may be gone
    return connect_fabric(options);
  }

  const net::FabricOptions options_;
  const std::vector<bootstrap::Card> cards_;
};

}  // namespace

std::unique_ptr<comm::Communicator> connect_fabric(const net::FabricOptions& options) {
  const bootstrap::Participant self{
      options.rank,
      options.size,
      options.job_id,
      options.job_key,
      options.meeting_timeout.value_or(options.timeout),
      fmt::format(" to {} port {}", options.master_address, options.master_port)};
  self.check(mesh::kMaxRanksOfHosts, "");
  bootstrap::HostMeeting hosts = bootstrap::meet_hosts(self, options);
  groups::Fleet fleet = fleet_of(hosts.cards);
  std::vector<int> here;
  for (int rank = 0; rank < options.size; ++rank)
    if (fleet.host_of[size_t(rank)] == fleet.host_of[size_t(options.rank)]) here.push_back(rank);
  fleet.ranks_here = int(here.size());
  fleet.exchange = options.exchange;
  fleet.threads = options.threads;

  bootstrap::Participant self_here = self;
  self_here.meeting_point.clear();
  bootstrap::Meeting meeting = bootstrap::meet(self_here, here, fleet.spans_hosts());
  fleet.processes_here = bootstrap::processes_of(meeting.peers);
  auto job = std::make_shared<segment::Job>(std::move(meeting.mapping), options.size);
  job->set_doorbells(std::move(meeting.doorbells));
  // Later than those who watch over processes and hosts, who know better why one is silent.
  const auto silence = options.silence + std::chrono::milliseconds(500);
  auto port = fleet.spans_hosts() ? std::make_unique<net::Port>(std::move(hosts.network.transport),
                                                                options.rank, hosts.secret, silence)
                                  : nullptr;
  if (port) fleet.exchange.takes_any_memory = port->takes_any_memory();
  auto seat = std::make_shared<groups::Seat>(job, options.rank, options.timeout, std::move(fleet),
                                             std::move(port));
  seat->watches.push_back(
      std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  seat->regroup = std::make_unique<RegroupHosts>(self, options, hosts.cards, std::move(hosts.door));
  seat->watches.push_back(std::make_unique<HostWatch>(*seat, std::move(hosts.cards),
                                                      std::move(hosts.sockets), options.silence));
  return groups::make_world(std::move(seat));
}

}  // namespace smp::jobs
