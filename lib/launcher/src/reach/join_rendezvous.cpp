#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <thread>

#include "reach/rendezvous_messages.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/reach/rendezvous.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::reach {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenTries{50};
constexpr milliseconds kForEachWord{5'000};
constexpr milliseconds kLeastForConnect{200};
constexpr size_t kShortestKey = 16;

void limit(const system::FileDescriptor& socket, int option, milliseconds time) {
  const timeval value{time.count() / 1000, time.count() % 1000 * 1000};
  setsockopt(socket.number(), SOL_SOCKET, option, &value, sizeof value);
}

// Nobody listens there yet, or it cannot be reached: try again.
system::FileDescriptor try_connect(const RendezvousEndpoint& endpoint, milliseconds time,
                                   std::string& why) {
  const AddressList list(endpoint);
  if (list.first() == nullptr) why = list.why_not();
  for (const addrinfo* one = list.first(); one != nullptr; one = one->ai_next) {
    system::FileDescriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    limit(socket, SO_SNDTIMEO, std::clamp(time, kLeastForConnect, kForEachWord));  // connect's too
    limit(socket, SO_RCVTIMEO, kForEachWord);
    if (connect(socket.number(), one->ai_addr, one->ai_addrlen) == 0) {
      limit(socket, SO_SNDTIMEO, kForEachWord);
      return socket;
    }
    why = errno == EINPROGRESS ? "no answer" : strerror(errno);
  }
  return system::FileDescriptor();
}

template <typename Word>
bool send_word(const system::FileDescriptor& socket, const Word& word) {
  return send(socket.number(), &word, sizeof word, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof word);
}

template <typename Word>
bool receive_word(const system::FileDescriptor& socket, Word& word) {
  return recv(socket.number(), &word, sizeof word, MSG_WAITALL) ==
         static_cast<ssize_t>(sizeof word);
}

// True: let in. False: the other side hung up. Throws ConfigError.
bool shake_hands(const system::FileDescriptor& socket, const std::string& at,
                 const std::string& key, const RendezvousNode& node) {
  RendezvousHello hello;
  hello.node_rank = static_cast<uint32_t>(node.node_rank);
  hello.slots = static_cast<uint32_t>(node.slots);
  hello.hosts = static_cast<uint32_t>(node.hosts);
  hello.nonce = make_nonce();
  RendezvousChallenge answer;
  if (!send_word(socket, hello) || !receive_word(socket, answer)) return false;
  if (!equal(answer.proof, proof_of(key, "answer", hello, answer.nonce)))
    throw ConfigError(fmt::format("host 0 at {} has another key", at));
  auto verdict = RendezvousVerdict::kTaken;
  if (!send_word(socket, proof_of(key, "hello", hello, answer.nonce)) ||
      !receive_word(socket, verdict))
    return false;
  switch (verdict) {
    case RendezvousVerdict::kWelcome: return true;
    case RendezvousVerdict::kTaken:
      throw ConfigError(
          fmt::format("host 0 at {} has another host of node rank {} already", at, node.node_rank));
    case RendezvousVerdict::kOtherHosts:
      throw ConfigError(fmt::format(
          "host 0 at {} was started with another number of hosts, {} here", at, node.hosts));
    case RendezvousVerdict::kOtherSlots:
      throw ConfigError(fmt::format(
          "host 0 at {} was started with another number of ranks a host, {} here: they have to "
          "be equal",
          at, node.slots));
  }
  throw ConfigError(fmt::format("host 0 at {} runs another version of smp-launch", at));
}

}  // namespace

RendezvousEndpoint parse_rendezvous_endpoint(const std::string& option, const std::string& text) {
  const size_t colon = text.rfind(':');
  RendezvousEndpoint endpoint;
  bool good = colon != text.npos && colon > 0;
  if (good) {
    endpoint.host = text.substr(0, colon);
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + colon + 1, last, endpoint.port);
    good = error == std::errc{} && end == last && endpoint.port > 0 && endpoint.port < 65536;
  }
  if (good && endpoint.host.front() == '[') {
    good = endpoint.host.size() > 2 && endpoint.host.back() == ']';
    if (good) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (good) {
    good = endpoint.host.find_first_of(":[] ") == endpoint.host.npos;
  }
  if (!good)
    throw ConfigError(fmt::format(
        "{} '{}': it is an address and a port of host 0, as in 10.0.0.1:29400", option, text));
  return endpoint;
}

std::string read_key_file(const std::string& path) {
  struct stat status {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  // It is read at each start; a FIFO could be waited for without end.
  if (is_there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    throw ConfigError(fmt::format("key file '{}' is no plain file", path));
  const std::string text = files::read_text_file(path, "key file");
  constexpr const char* kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  const std::string key =
      first == text.npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  if (key.size() < kShortestKey)
    throw ConfigError(
        fmt::format("key file '{}' holds {} characters, {} are the least: openssl rand -hex 32",
                    path, key.size(), kShortestKey));
  if (is_there && (status.st_mode & S_IROTH) != 0)
    throw ConfigError(fmt::format("everybody may read key file '{0}': chmod 600 {0}", path));
  return key;
}

system::FileDescriptor join_rendezvous(const RendezvousEndpoint& endpoint, const std::string& key,
                                       const RendezvousNode& node, milliseconds time) {
  const std::string at = fmt::format("{}:{}", endpoint.host, endpoint.port);
  const auto deadline = std::chrono::steady_clock::now() + time;
  std::string why;
  milliseconds left = time;
  do {
    system::FileDescriptor socket = try_connect(endpoint, left, why);
    if (socket.is_open()) {
      if (shake_hands(socket, at, key, node)) return socket;
      why = "the other side hung up";
    }
    std::this_thread::sleep_for(kBetweenTries);
    left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  } while (left.count() > 0);
  throw std::runtime_error(fmt::format("host 0 was not reached at {} within {}: {}", at,
                                       hosts::duration_text(time), why));
}

}  // namespace smp::reach
