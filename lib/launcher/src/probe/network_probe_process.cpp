#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "reach/host_addresses.h"
#include "smp/launcher/probe/network_probe.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

namespace smp::probe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAtOnce = 128;  // connections that are being made

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

// Throws std::runtime_error for what is no address.
Address address_of(const std::string& text, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &list);
      error != 0)
    throw std::runtime_error(fmt::format("'{}': {}", text, gai_strerror(error)));
  Address address;
  memcpy(&address.bytes, list->ai_addr, list->ai_addrlen);
  address.size = list->ai_addrlen;
  freeaddrinfo(list);
  return address;
}

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// One connection that is being made, or whose first bytes are waited for.
struct StartAttempt {
  int peer = 0;
  system::FileDescriptor socket;
  Clock::time_point began;
  int connected_us = -1;
  std::string heard;
};

struct Peer {
  int number = 0;
  std::string address;
  int port = 0;
};

class Probe {
 public:
  int run();

 private:
  bool read_lines();
  void take_line(const std::string& line);
  void listen_at(const std::string& address);
  void greet_guests();
  void begin_attempts();
  void advance(StartAttempt& attempt);
  void tell(StartAttempt& attempt, const std::string& why);

  std::string token_, waiting_;
  system::FileDescriptor listener_;
  std::vector<Peer> peers_;
  size_t next_ = 0;  // of peers_
  bool go_ = false, told_ = false;
  std::chrono::milliseconds patience_{0};
  std::vector<StartAttempt> attempts_;
};

// False at the end of the input.
bool Probe::read_lines() {
  std::array<char, 4096> bytes;
  const ssize_t size = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (size == 0 || (size < 0 && errno != EINTR)) return false;
  if (size > 0) waiting_.append(bytes.data(), static_cast<size_t>(size));
  for (size_t end = waiting_.find('\n'); end != waiting_.npos; end = waiting_.find('\n')) {
    take_line(waiting_.substr(0, end));
    waiting_.erase(0, end + 1);
  }
  return true;
}

void Probe::take_line(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  words >> what;
  if (what == "listen") {
    std::string address;
    int64_t patience_ms = 0;
    words >> token_ >> address >> patience_ms;
    patience_ = std::chrono::milliseconds(patience_ms);
    listen_at(address);
  } else if (what == "peer") {
    Peer peer;
    words >> peer.number >> peer.address >> peer.port;
    peers_.push_back(std::move(peer));
  } else if (what == "go") {
    go_ = true;
  }
}

void Probe::listen_at(const std::string& text) {
  listener_ = sockets::listen_tcp(text, 0);
  const int port = sockets::local_port_of(listener_);
  const LinkFacts link = link_of_address(text);
  say(fmt::format("here {} {} {} {}", port, link.speed_mbps, link.state.empty() ? "-" : link.state,
                  link.name.empty() ? "-" : link.name));
}

// So that whoever connects knows that it has found the probe of this job.
void Probe::greet_guests() {
  while (true) {
    const system::FileDescriptor peer(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return;
    (void)send(peer.number(), token_.data(), token_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Probe::begin_attempts() {
  while (next_ < peers_.size() && attempts_.size() < kAtOnce) {
    const Peer& peer = peers_[next_++];
    StartAttempt attempt;
    attempt.peer = peer.number;
    attempt.began = Clock::now();
    try {
      const Address address = address_of(peer.address, peer.port);
      attempt.socket = system::FileDescriptor(
          socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (connect(attempt.socket.number(), reinterpret_cast<const sockaddr*>(&address.bytes),
                  address.size) != 0 &&
          errno != EINPROGRESS) {
        tell(attempt, strerror(errno));
        continue;
      }
      attempts_.push_back(std::move(attempt));
    } catch (const std::runtime_error& error) {
      tell(attempt, error.what());
    }
  }
}

void Probe::advance(StartAttempt& attempt) {
  if (attempt.connected_us < 0) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(attempt.socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return tell(attempt, strerror(error));
    attempt.connected_us = static_cast<int>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - attempt.began)
            .count());
  }
  std::array<char, 64> bytes;
  const ssize_t size = recv(attempt.socket.number(), bytes.data(), bytes.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) attempt.heard.append(bytes.data(), static_cast<size_t>(size));
  if (attempt.heard == token_) return tell(attempt, "");
  if (size <= 0 || !token_.starts_with(attempt.heard))
    tell(attempt, "another program answers at this address");
}

// An empty `why`: it was reached.
void Probe::tell(StartAttempt& attempt, const std::string& why) {
  say(why.empty() ? fmt::format("reached {} {}", attempt.peer, attempt.connected_us)
                  : fmt::format("unreached {} {}", attempt.peer, why));
  attempt.socket = system::FileDescriptor();
  attempt.peer = -1;
}

int Probe::run() {
  while (true) {
    if (go_) begin_attempts();
    if (go_ && !told_ && attempts_.empty()) {
      told_ = true;
      say("done");
    }
    std::vector<pollfd> ready = {{STDIN_FILENO, POLLIN, 0},
                                 {listener_ ? listener_.number() : -1, POLLIN, 0}};
    for (const StartAttempt& attempt : attempts_)
      ready.push_back({attempt.socket.number(),
                       static_cast<short>(attempt.connected_us < 0 ? POLLOUT : POLLIN), 0});
    poll(ready.data(), ready.size(), attempts_.empty() ? -1 : 100);
    if (ready[1].revents != 0) greet_guests();
    const auto now = Clock::now();
    for (size_t i = 0; i < attempts_.size(); ++i) {
      StartAttempt& attempt = attempts_[i];
      if (ready[i + 2].revents != 0)
        advance(attempt);
      else if (now - attempt.began > patience_)
        tell(attempt,
             fmt::format("no answer in {:g} s", static_cast<double>(patience_.count()) / 1000));
    }
    std::erase_if(attempts_, [](const StartAttempt& attempt) { return attempt.peer < 0; });
    if (ready[0].revents != 0 && !read_lines()) return static_cast<int>(ExitCode::kOk);
  }
}

std::string interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const bool v4 = one->ifa_addr->sa_family == AF_INET;
    if (!v4 && one->ifa_addr->sa_family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(one->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), text.data(),
                    text.size(), nullptr, 0, NI_NUMERICHOST) == 0 &&
        address == text.data())
      return one->ifa_name;
  }
  return "";
}

}  // namespace

LinkFacts link_of_address(const std::string& address, const std::string& root) {
  LinkFacts link;
  link.name = interface_of(address);
  if (link.name.empty()) return link;
  const std::string folder = fmt::format("{}/sys/class/net/{}/", root, link.name);
  std::ifstream(folder + "operstate") >> link.state;
  int speed = 0;  // -1, or an error, where the driver does not know
  if (std::ifstream(folder + "speed") >> speed && speed > 0) link.speed_mbps = speed;
  return link;
}

std::vector<std::string> own_links() {
  std::vector<std::string> links;
  for (const std::string& one : reach::own_addresses()) {
    const std::string address = one.substr(one.find('=') + 1);
    links.push_back(fmt::format("{} ({})", address, text_of(link_of_address(address))));
  }
  return links;
}

std::string text_of(const LinkFacts& link) {
  std::string text = link.name;
  if (!link.state.empty() && link.state != "unknown") text += ", " + link.state;
  if (link.speed_mbps >= 1000) return fmt::format("{}, {:g} Gb/s", text, link.speed_mbps / 1000.0);
  return link.speed_mbps > 0 ? fmt::format("{}, {} Mb/s", text, link.speed_mbps) : text;
}

int run_probe() {
  try {
    return Probe().run();
  } catch (const std::runtime_error& error) {
    say(fmt::format("{}", error.what()));
    return static_cast<int>(ExitCode::kFailure);
  }
}

}  // namespace smp::probe
