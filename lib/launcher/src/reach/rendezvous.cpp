#include "smp/launcher/reach/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <system_error>

#include "reach/join_protocol.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/plan/base/errors.h"
#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "smp/rendezvous/wire/payload.h"

namespace smp::reach {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};

bool is_readable(int descriptor) {
  pollfd event{descriptor, POLLIN, 0};
  return poll(&event, 1, 0) > 0;
}

}  // namespace

Rendezvous::Rendezvous(const RendezvousEndpoint& endpoint, std::string key) : key_(std::move(key)) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("cannot wait for the other hosts at {}:{}: {}", endpoint.host,
                                  endpoint.port, why));
  };
  try {
    listener_ = sockets::listen_tcp(endpoint.host, endpoint.port);
    address_ = sockets::local_address_of(listener_);
    port_ = sockets::local_port_of(listener_);
  } catch (const std::system_error& error) {
    fail(error.code() == std::errc::address_not_available ? "this host does not have that address"
                                                          : error.code().message());
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
}

// A node that was started for another number of hosts hears so by the handshake and leaves.
void Rendezvous::admit(handshake::Acceptor::AcceptedPeer peer, const RendezvousNode& self) {
  RendezvousNode node{peer.handshake.peer_rank(), 0, peer.handshake.peer_size()};
  if (node.hosts != self.hosts) return;
  node.slots = wire::PayloadReader(peer.message).small_number();
  const bool taken = node.node_rank == self.node_rank ||
                     std::any_of(arrived_.begin(), arrived_.end(), [&](const JoinedNode& other) {
                       return other.node.node_rank == node.node_rank;
                     });
  const JoinVerdict verdict = node.slots != self.slots ? JoinVerdict::kOtherSlots
                              : taken                  ? JoinVerdict::kTaken
                                                       : JoinVerdict::kWelcome;
  const std::string said = wire::PayloadWriter().number(uint64_t(verdict)).bytes();
  if (handshake::send_signed(peer.socket, kVerdictMessage, peer.handshake, said) &&
      verdict == JoinVerdict::kWelcome)
    arrived_.push_back({node, std::move(peer.socket)});
}

std::optional<int> Rendezvous::gather(size_t count, const RendezvousNode& self, milliseconds time,
                                      int control_fd, const std::set<int>& ending_signals,
                                      int events_fd, const std::function<bool()>& goes_on) {
  const auto deadline = Clock::now() + time;
  const handshake::Member leader = member_of(kLeader, self.hosts, key_);
  handshake::Acceptor acceptor(leader, kJoinProtocol, kSlotsMessage, deadline);
  std::vector<int> wake;
  for (const int descriptor : {control_fd, events_fd})
    if (descriptor >= 0) wake.push_back(descriptor);
  while (arrived_.size() < count) {
    if (Clock::now() > deadline) {
      listener_.reset();
      throw RendezvousTimeout(fmt::format("{} of {} other hosts joined at {}:{} within {}{}",
                                          arrived_.size(), count, address_, port_,
                                          hosts::duration_text(time), acceptor.rejected().text()));
    }
    auto peer = acceptor.next(listener_, std::min(deadline, Clock::now() + kLookEvery), wake);
    if (control_fd >= 0 && is_readable(control_fd)) {
      if (const auto number = process::asked_to_end(control_fd, ending_signals)) return number;
    }
    if (goes_on && !goes_on()) break;
    if (peer) admit(std::move(*peer), self);
  }
  std::sort(arrived_.begin(), arrived_.end(),
            [](const auto& a, const auto& b) { return a.node.node_rank < b.node.node_rank; });
  listener_.reset();
  return std::nullopt;
}

void Rendezvous::close() {
  listener_.reset();
  arrived_.clear();
}

}  // namespace smp::reach
