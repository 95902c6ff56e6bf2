#include "smp/comm/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "handshake.h"
#include "host_meeting.h"
#include "host_watch.h"
#include "job.h"
#include "port.h"
#include "regroup.h"
#include "rendezvous.h"
#include "seat.h"
#include "socket_watch.h"
#include "tcp_socket.h"

namespace smp {
namespace {

using namespace shm;

Fleet fleet_of(const std::vector<Card>& cards) {
  Fleet fleet;
  std::vector<std::string> identities;
  for (const Card& card : cards) {
    const auto known = std::find(identities.begin(), identities.end(), card.host_identity);
    fleet.host_of.push_back(int(known - identities.begin()));
    if (known != identities.end()) continue;
    identities.push_back(card.host_identity);
    fleet.hosts.push_back(card.host_name);
  }
  return fleet;
}

class RegroupHosts final : public Regroup {
 public:
  RegroupHosts(const Participant& self, const FabricOptions& options, std::vector<Card> cards,
               Descriptor door)
      : Regroup(self, std::move(door)), options_(options), cards_(std::move(cards)) {}

 private:
  Knock knock(int rank, Deadline deadline) override {
    const Card& card = cards_[size_t(rank)];
    Knock door;
    door.socket = try_connect_tcp(card.address, card.door, deadline, &door.is_gone);
    return door;
  }
  Place place() override {
    const Card& own = cards_[size_t(options_.rank)];
    return {own.address, own.door};
  }
  std::unique_ptr<Communicator> begin(const Beginning& beginning) override {
    FabricOptions options = options_;
    options.rank = beginning.rank;
    options.size = beginning.size;
    options.job_id = beginning.job_id;
    options.master_address = beginning.place.address;
    options.master_port = beginning.place.port;
    options.meeting_timeout = beginning.limit;
    options.listening = nullptr;  // whom it told may be gone
    return connect_fabric(options);
  }

  const FabricOptions options_;
  const std::vector<Card> cards_;
};

}  // namespace

std::unique_ptr<Communicator> connect_fabric(const FabricOptions& options) {
  const Participant self{
      options.rank,
      options.size,
      options.job_id,
      options.job_key,
      options.meeting_timeout.value_or(options.timeout),
      fmt::format(" to {} port {}", options.master_address, options.master_port)};
  self.check(kMaxRanksOfHosts, "");
  HostMeeting hosts = meet_hosts(self, options);
  Fleet fleet = fleet_of(hosts.cards);
  std::vector<int> here;
  for (int rank = 0; rank < options.size; ++rank)
    if (fleet.host_of[size_t(rank)] == fleet.host_of[size_t(options.rank)]) here.push_back(rank);
  fleet.ranks_here = int(here.size());
  fleet.exchange = options.exchange;
  fleet.threads = options.threads;

  Participant self_here = self;
  self_here.meeting_point.clear();
  Meeting meeting = meet(self_here, here, fleet.spans_hosts());
  fleet.processes_here = processes_of(meeting.peers);
  auto job = std::make_shared<Job>(std::move(meeting.mapping), options.size);
  job->set_doorbells(std::move(meeting.doorbells));
  // Later than those who watch over processes and hosts, who know better why one is silent.
  const auto silence = options.silence + std::chrono::milliseconds(500);
  auto port = fleet.spans_hosts() ? std::make_unique<Port>(std::move(hosts.network.transport),
                                                           options.rank, hosts.secret, silence)
                                  : nullptr;
  if (port) fleet.exchange.takes_any_memory = port->takes_any_memory();
  auto seat =
      std::make_shared<Seat>(job, options.rank, options.timeout, std::move(fleet), std::move(port));
  seat->watches.push_back(
      std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  seat->regroup = std::make_unique<RegroupHosts>(self, options, hosts.cards, std::move(hosts.door));
  seat->watches.push_back(std::make_unique<HostWatch>(*seat, std::move(hosts.cards),
                                                      std::move(hosts.sockets), options.silence));
  return make_world(std::move(seat));
}

}  // namespace smp
