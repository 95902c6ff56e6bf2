#include "smp/rendezvous/handshake/acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "smp/rendezvous/sockets/unix_socket.h"

namespace smp::handshake {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool is_local(const system::FileDescriptor& socket) {
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  return getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &bytes) == 0 &&
         own.ss_family == AF_UNIX;
}

}  // namespace

Acceptor::Acceptor(const Member& self, uint64_t protocol, const char* what,
                   sockets::Deadline deadline)
    : self_(self),
      protocol_(protocol),
      what_(what),
      deadline_(deadline),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("cannot watch incoming connections");
}

std::optional<Acceptor::AcceptedPeer> Acceptor::next(const system::FileDescriptor& listener,
                                                     sockets::Deadline until,
                                                     const std::vector<int>& wake) {
  std::vector<pollfd> events = {{listener.number(), POLLIN, 0}, {epoll_.number(), POLLIN, 0}};
  for (const int descriptor : wake) events.push_back({descriptor, POLLIN, 0});
  for (;;) {
    if (auto peer = read_next()) return peer;
    drop_late();
    sockets::Deadline next_limit = until;
    for (const auto& [descriptor, pending] : pending_)
      next_limit = std::min(next_limit, pending.limit);
    const auto left = std::chrono::ceil<milliseconds>(next_limit - steady_clock::now());
    const int ready =
        poll(events.data(), events.size(), int(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno != EINTR) throw_errno("cannot wait for incoming connections");
    if (ready > 0 && events[0].revents != 0) accept_pending(listener);
    const bool is_woken =
        ready > 0 && std::any_of(events.begin() + 2, events.end(),
                                 [](const pollfd& one) { return one.revents != 0; });
    // However many connections come.
    if (is_woken || steady_clock::now() >= until) return std::nullopt;
  }
}

system::FileDescriptor Acceptor::accept_or_make_room(const system::FileDescriptor& listener) {
  if (pending_.empty()) return sockets::accept_one(listener);
  bool is_full = false;
  system::FileDescriptor socket = sockets::accept_one(listener, &is_full);
  if (is_full) drop_oldest();
  return socket;
}

void Acceptor::accept_pending(const system::FileDescriptor& listener) {
  PendingPeer pending{accept_or_make_room(listener), Handshake(self_, protocol_), "",
                      steady_clock::now() + kHandshakeLimit};
  if (!pending.socket) return;
  if (is_local(pending.socket)) {
    const auto user = sockets::user_of_peer(pending.socket);
    pending.origin = user ? fmt::format("user {}", *user) : "an unknown user";
    if (user != geteuid()) return rejected_.reject(pending.origin);
  } else {
    sockets::prepare(pending.socket, deadline_);
    pending.origin = sockets::remote_address_of(pending.socket);
  }
  if (pending_.size() >= kMostPending) drop_oldest();
  const int descriptor = pending.socket.number();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.fd = descriptor;
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw_errno("cannot watch incoming connections");
  pending_.insert_or_assign(descriptor, std::move(pending));
}

// Reads only whole messages, so it never waits.
Acceptor::ReadResult Acceptor::read_from(PendingPeer& pending, std::string& message) {
  const system::FileDescriptor& socket = pending.socket;
  const sockets::Deadline now = steady_clock::now();
  if (!pending.is_answered) {
    int bytes = 0;
    if (ioctl(socket.number(), FIONREAD, &bytes) != 0 || size_t(bytes) < Handshake::kHelloBytes)
      return sockets::closed_by_peer(socket) ? ReadResult::kRejected : ReadResult::kIncomplete;
    if (!pending.handshake.respond(socket, now)) return ReadResult::kRejected;
    pending.is_answered = true;
  }
  if (!signed_message_is_ready(socket))
    return sockets::closed_by_peer(socket) ? ReadResult::kRejected : ReadResult::kIncomplete;
  auto said = receive_signed(socket, what_, pending.handshake, now);
  if (!said) return ReadResult::kRejected;
  message = std::move(*said);
  return ReadResult::kComplete;
}

std::optional<Acceptor::AcceptedPeer> Acceptor::read_next() {
  epoll_event event;
  while (epoll_wait(epoll_.number(), &event, 1, 0) > 0) {
    const auto found = pending_.find(event.data.fd);
    if (found == pending_.end()) continue;  // a forked child has that socket still
    std::string message;
    const ReadResult result = read_from(found->second, message);
    if (result == ReadResult::kIncomplete) continue;
    PendingPeer pending = std::move(found->second);
    pending_.erase(found);
    if (result == ReadResult::kRejected) {
      rejected_.reject(pending.origin);
      continue;
    }
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, pending.socket.number(), nullptr);
    return AcceptedPeer{std::move(pending.socket), pending.handshake, std::move(pending.origin),
                        std::move(message)};
  }
  return std::nullopt;
}

void Acceptor::drop_oldest() {
  const auto oldest = std::min_element(
      pending_.begin(), pending_.end(),
      [](const auto& a, const auto& b) { return a.second.limit < b.second.limit; });
  rejected_.reject(oldest->second.origin);
  pending_.erase(oldest);
}

void Acceptor::drop_late() {
  const sockets::Deadline now = steady_clock::now();
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    if (pending->second.limit > now) {
      ++pending;
      continue;
    }
    rejected_.reject(pending->second.origin);
    pending = pending_.erase(pending);
  }
}

}  // namespace smp::handshake
