#include "smp/comm/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "handshake.h"
#include "host_meeting.h"
#include "host_watch.h"
#include "job.h"
#include "port.h"
#include "rendezvous.h"
#include "seat.h"
#include "socket_watch.h"

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

}  // namespace

std::unique_ptr<Communicator> connect_fabric(const FabricOptions& options) {
  const Participant self{
      options.rank,    options.size,
      options.job_id,  options.job_key,
      options.timeout, fmt::format(" to {} port {}", options.master_address, options.master_port)};
  self.check(kMaxRanksOfHosts, "");
  HostMeeting hosts = meet_hosts(self, options);
  Fleet fleet = fleet_of(hosts.cards);
  std::vector<int> here;
  for (int rank = 0; rank < options.size; ++rank)
    if (fleet.host_of[size_t(rank)] == fleet.host_of[size_t(options.rank)]) here.push_back(rank);
  fleet.ranks_here = int(here.size());

  Meeting meeting = meet({self.rank, self.size, self.job_id, self.job_key, self.timeout, ""}, here);
  auto job = std::make_shared<Job>(std::move(meeting.mapping), options.size);
  auto port = fleet.spans_hosts() ? std::make_unique<Port>(std::move(hosts.network.transport),
                                                           options.rank, hosts.secret)
                                  : nullptr;
  auto seat =
      std::make_shared<Seat>(job, options.rank, options.timeout, std::move(fleet), std::move(port));
  seat->watches.push_back(
      std::make_unique<SocketWatch>(job, options.rank, std::move(meeting.peers)));
  seat->watches.push_back(std::make_unique<HostWatch>(*seat, std::move(hosts.cards),
                                                      std::move(hosts.sockets), options.silence));
  return make_world(std::move(seat));
}

}  // namespace smp
