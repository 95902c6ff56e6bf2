#include "smp/comm/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

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

void check(const FabricOptions& options) {
  if (options.size < 1 || options.size > kMaxRanksOfHosts)
    throw std::invalid_argument(
        fmt::format("a job of {} ranks: 1 to {} are possible", options.size, kMaxRanksOfHosts));
  if (options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument(
        fmt::format("no rank {} in a job of {} ranks", options.rank, options.size));
  if (options.job_id.empty() || options.job_id.size() > 64)
    throw std::invalid_argument("the job id must have 1 to 64 characters");
  if (options.job_key.empty()) throw std::invalid_argument("the job key is empty");
}

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
  check(options);
  HostMeeting hosts = meet_hosts(options);
  Fleet fleet = fleet_of(hosts.cards);
  std::vector<int> here;
  for (int rank = 0; rank < options.size; ++rank)
    if (fleet.host_of[size_t(rank)] == fleet.host_of[size_t(options.rank)]) here.push_back(rank);
  fleet.ranks_here = int(here.size());

  Meeting meeting =
      meet({options.rank, options.size, options.job_id, options.job_key, options.timeout}, here);
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
