#include "bootstrap/entrance.h"

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

#include "bootstrap/letter.h"
#include "bootstrap/tcp_socket.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool is_local(const waiting::Descriptor& socket) {
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) == 0 &&
         own.ss_family == AF_UNIX;
}

}  // namespace

Entrance::Entrance(const Participant& self, uint64_t greeting, const char* what)
    : self_(self), greeting_(greeting), what_(what), news_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!news_) throw_errno("cannot watch who comes");
}

std::optional<Entrance::Guest> Entrance::next(const waiting::Descriptor& listener, Deadline until) {
  for (;;) {
    if (auto guest = hear_next()) return guest;
    drop_late();
    Deadline wake = until;
    for (const auto& [descriptor, caller] : callers_) wake = std::min(wake, caller.limit);
    const auto left = std::chrono::ceil<milliseconds>(wake - steady_clock::now());
    pollfd events[] = {{listener.get(), POLLIN, 0}, {news_.get(), POLLIN, 0}};
    const int ready = poll(events, 2, int(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno != EINTR) throw_errno("cannot wait for who comes");
    if (ready > 0 && events[0].revents != 0) admit(listener);
    if (steady_clock::now() >= until) return std::nullopt;  // however many strangers come
  }
}

void Entrance::admit(const waiting::Descriptor& listener) {
  Caller caller{accept_one(listener), Handshake(self_, greeting_), "",
                steady_clock::now() + kHandshakeLimit};
  if (!caller.socket) return;
  if (is_local(caller.socket)) {
    const auto user = user_of_peer(caller.socket);
    caller.origin = user ? fmt::format("user {}", *user) : "nobody known";
    if (user != geteuid()) return strangers_.refuse(caller.origin);
  } else {
    prepare(caller.socket, self_.deadline);
    caller.origin = remote_address_of(caller.socket);
  }
  if (callers_.size() >= kMostCallers) drop_oldest();
  const int descriptor = caller.socket.get();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.fd = descriptor;
  if (epoll_ctl(news_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw_errno("cannot watch who comes");
  callers_.insert_or_assign(descriptor, std::move(caller));
}

// Reads only what is there as a whole: nobody is waited for.
Entrance::Heard Entrance::hear(Caller& caller, std::string& letter) {
  const waiting::Descriptor& socket = caller.socket;
  const Deadline now = steady_clock::now();
  if (!caller.is_answered) {
    int bytes = 0;
    if (ioctl(socket.get(), FIONREAD, &bytes) != 0 || size_t(bytes) < Handshake::kHelloBytes)
      return closed_by_peer(socket) ? Heard::kStranger : Heard::kNotAll;
    if (!caller.handshake.answer(socket, now)) return Heard::kStranger;
    caller.is_answered = true;
  }
  if (!letter_is_here(socket)) return closed_by_peer(socket) ? Heard::kStranger : Heard::kNotAll;
  auto said = receive_letter(socket, what_, caller.handshake, now);
  if (!said) return Heard::kStranger;
  letter = std::move(*said);
  return Heard::kLetter;
}

std::optional<Entrance::Guest> Entrance::hear_next() {
  epoll_event event;
  while (epoll_wait(news_.get(), &event, 1, 0) > 0) {
    const auto found = callers_.find(event.data.fd);
    if (found == callers_.end()) continue;  // a forked child has that socket still
    std::string letter;
    const Heard heard = hear(found->second, letter);
    if (heard == Heard::kNotAll) continue;
    Caller caller = std::move(found->second);
    callers_.erase(found);
    if (heard == Heard::kStranger) {
      strangers_.refuse(caller.origin);
      continue;
    }
    epoll_ctl(news_.get(), EPOLL_CTL_DEL, caller.socket.get(), nullptr);
    return Guest{std::move(caller.socket), caller.handshake, std::move(caller.origin),
                 std::move(letter)};
  }
  return std::nullopt;
}

void Entrance::drop_oldest() {
  const auto oldest = std::min_element(
      callers_.begin(), callers_.end(),
      [](const auto& a, const auto& b) { return a.second.limit < b.second.limit; });
  strangers_.refuse(oldest->second.origin);
  callers_.erase(oldest);
}

void Entrance::drop_late() {
  const Deadline now = steady_clock::now();
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    if (caller->second.limit > now) {
      ++caller;
      continue;
    }
    strangers_.refuse(caller->second.origin);
    caller = callers_.erase(caller);
  }
}

}  // namespace smp::bootstrap
