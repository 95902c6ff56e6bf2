#include "smp/launcher/reach/rendezvous.h"

#include <errno.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>

#include "reach/rendezvous_messages.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/plan/base/errors.h"

namespace smp::reach {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kForHandshake{3'000};
constexpr size_t kMostPending = 1024;  // at once; of more the oldest is dropped
constexpr int kAcceptedAtOnce = 128;   // then those are heard who are here

std::string numeric(const sockaddr* address, socklen_t size, int& port) {
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  getnameinfo(address, size, host, sizeof host, service, sizeof service,
              NI_NUMERICHOST | NI_NUMERICSERV);
  port = std::atoi(service);
  return host;
}

}  // namespace

// A connection that has not proved yet that it belongs here.
struct Rendezvous::PendingPeer {
  system::FileDescriptor socket;
  Clock::time_point since = Clock::now();
  std::string heard;
  RendezvousHello hello;
  bool greeted = false;
  Nonce nonce{};
};

Rendezvous::Rendezvous(const RendezvousEndpoint& endpoint, std::string key) : key_(std::move(key)) {
  const AddressList list(endpoint);
  const auto fail = [&](const char* why) {
    throw ConfigError(fmt::format("cannot wait for the other hosts at {}:{}: {}", endpoint.host,
                                  endpoint.port, why));
  };
  if (list.first() == nullptr) fail(list.why_not());
  const addrinfo& one = *list.first();
  listener_ =
      system::FileDescriptor(socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int off = 0;
  if (one.ai_family == AF_INET6)
    setsockopt(listener_.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(listener_.number(), one.ai_addr, one.ai_addrlen) != 0)
    fail(errno == EADDRNOTAVAIL ? "that is no address of this host" : strerror(errno));
  if (listen(listener_.number(), SOMAXCONN) != 0) fail(strerror(errno));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&own), &size);
  address_ = numeric(reinterpret_cast<sockaddr*>(&own), size, port_);
}

Rendezvous::~Rendezvous() = default;
Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;

// Those who say nothing keep nobody out, however many they are.
void Rendezvous::accept_some() {
  for (int left = kAcceptedAtOnce; left > 0; --left) {
    const int number = accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const bool is_full = number < 0 && (errno == EMFILE || errno == ENFILE);
    if (number < 0 && !is_full) return;
    if (!pending_.empty() && (is_full || pending_.size() >= kMostPending))
      pending_.erase(pending_.begin());
    if (is_full) return;
    const int on = 1;
    setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto peer = std::make_unique<PendingPeer>();
    peer->socket = system::FileDescriptor(number);
    pending_.push_back(std::move(peer));
  }
}

// False: it is done with, let in or not.
bool Rendezvous::hear(PendingPeer& peer, const RendezvousNode& self) {
  char bytes[256];
  const size_t wanted = peer.greeted ? sizeof(Mac) : sizeof(RendezvousHello);
  const ssize_t size = recv(peer.socket.number(), bytes, wanted - peer.heard.size(), 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  peer.heard.append(bytes, static_cast<size_t>(size));
  if (peer.heard.size() < wanted) return true;
  if (!peer.greeted) {
    memcpy(&peer.hello, peer.heard.data(), sizeof peer.hello);
    if (!peer.hello.is_greeting()) return false;
    peer.nonce = make_nonce();
    const RendezvousChallenge answer{peer.nonce, proof_of(key_, "answer", peer.hello, peer.nonce)};
    peer.greeted = true;
    peer.heard.clear();
    return send(peer.socket.number(), &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
  }
  Mac theirs;
  memcpy(theirs.data(), peer.heard.data(), sizeof theirs);
  if (!equal(theirs, proof_of(key_, "hello", peer.hello, peer.nonce))) return false;
  const RendezvousNode node = peer.hello.node();
  const bool taken = node.node_rank == self.node_rank ||
                     std::any_of(arrived_.begin(), arrived_.end(), [&](const JoinedNode& other) {
                       return other.node.node_rank == node.node_rank;
                     });
  const RendezvousVerdict verdict = node.hosts != self.hosts   ? RendezvousVerdict::kOtherHosts
                                    : node.slots != self.slots ? RendezvousVerdict::kOtherSlots
                                    : taken                    ? RendezvousVerdict::kTaken
                                                               : RendezvousVerdict::kWelcome;
  const auto byte = static_cast<unsigned char>(verdict);
  if (send(peer.socket.number(), &byte, 1, MSG_NOSIGNAL) == 1 &&
      verdict == RendezvousVerdict::kWelcome)
    arrived_.push_back({node, std::move(peer.socket)});
  return false;
}

void Rendezvous::close_old() {
  const auto now = Clock::now();
  std::erase_if(pending_, [&](const auto& one) { return now - one->since > kForHandshake; });
}

std::optional<int> Rendezvous::gather(size_t count, const RendezvousNode& self, milliseconds time,
                                      int control_fd, const std::set<int>& ending_signals,
                                      int events_fd, const std::function<bool()>& goes_on) {
  const auto deadline = Clock::now() + time;
  while (arrived_.size() < count) {
    if (Clock::now() > deadline) {
      stop_listening();
      throw RendezvousTimeout(fmt::format("{} of {} other hosts came to {}:{} within {}",
                                          arrived_.size(), count, address_, port_,
                                          hosts::duration_text(time)));
    }
    std::vector<pollfd> ready = {
        {listener_.number(), POLLIN, 0}, {control_fd, POLLIN, 0}, {events_fd, POLLIN, 0}};
    for (const auto& peer : pending_) ready.push_back({peer->socket.number(), POLLIN, 0});
    poll(ready.data(), ready.size(), 100);
    if (ready[1].revents != 0) {
      if (const auto number = process::asked_to_end(control_fd, ending_signals)) return number;
    }
    if (goes_on && !goes_on()) break;
    std::vector<std::unique_ptr<PendingPeer>> left;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (ready[i + 3].revents == 0 || hear(*pending_[i], self))
        left.push_back(std::move(pending_[i]));
    }
    pending_ = std::move(left);
    close_old();
    if (ready[0].revents != 0) accept_some();
  }
  std::sort(arrived_.begin(), arrived_.end(),
            [](const auto& a, const auto& b) { return a.node.node_rank < b.node.node_rank; });
  stop_listening();
  return std::nullopt;
}

void Rendezvous::stop_listening() {
  listener_.reset();
  pending_.clear();
}

void Rendezvous::close() {
  stop_listening();
  arrived_.clear();
}

}  // namespace smp::reach
