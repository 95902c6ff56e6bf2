#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <thread>

#include "reach/join_protocol.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/reach/rendezvous.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "smp/rendezvous/wire/payload.h"

namespace smp::reach {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetweenTries{50};
constexpr milliseconds kMessageLimit{5'000};
constexpr milliseconds kShortestConnect{200};
constexpr size_t kShortestKey = 16;

// An empty descriptor, and why, if nobody listens there yet or it cannot be reached: try again.
system::FileDescriptor try_connect(const RendezvousEndpoint& endpoint, milliseconds time,
                                   std::string& why) {
  const auto deadline = Clock::now() + std::clamp(time, kShortestConnect, kMessageLimit);
  int error = 0;
  try {
    system::FileDescriptor socket =
        sockets::try_connect_tcp(endpoint.host, endpoint.port, deadline, &error);
    if (socket) sockets::prepare(socket, Clock::now() + kMessageLimit);
    why = error == ETIMEDOUT ? "no answer" : strerror(error);
    return socket;
  } catch (const std::runtime_error& failure) {  // a name that DNS does not know yet
    why = failure.what();
    return {};
  }
}

// The leader's verdict; nothing if it hung up. Throws HandshakeError, ProtocolError.
std::optional<JoinVerdict> join_by(const system::FileDescriptor& socket, const std::string& key,
                                   const RendezvousNode& node) {
  const handshake::Member self = member_of(node.node_rank, node.hosts, key);
  const auto deadline = Clock::now() + kMessageLimit;
  handshake::Handshake handshake(self, kJoinProtocol);
  const std::string slots = wire::PayloadWriter().number(uint64_t(node.slots)).bytes();
  if (!handshake.initiate(socket, kLeader, deadline) ||
      !handshake::send_signed(socket, kSlotsMessage, handshake, slots))
    return std::nullopt;
  const auto said = handshake::receive_signed(socket, kVerdictMessage, handshake, deadline);
  if (!said) return std::nullopt;
  return JoinVerdict(wire::PayloadReader(*said).number());
}

// True: admitted. False: host 0 closed the connection. Throws ConfigError.
bool is_admitted(const system::FileDescriptor& socket, const std::string& at,
                 const std::string& key, const RendezvousNode& node) {
  using Reason = handshake::HandshakeError::Reason;
  try {
    const auto verdict = join_by(socket, key, node);
    if (!verdict) return false;
    switch (*verdict) {
      case JoinVerdict::kWelcome: return true;
      case JoinVerdict::kTaken:
        throw ConfigError(
            fmt::format("host 0 at {} already has a host with node rank {}: each host needs a node "
                        "rank of its own",
                        at, node.node_rank));
      case JoinVerdict::kOtherSlots:
        throw ConfigError(
            fmt::format("host 0 at {} was started with another number of ranks per host than this "
                        "one ({}): all hosts need the same number",
                        at, node.slots));
    }
  } catch (const handshake::HandshakeError& error) {
    if (error.reason == Reason::kKey)
      throw ConfigError(
          fmt::format("host 0 at {} has another key: all hosts need the same key", at));
    if (error.reason == Reason::kSize)
      throw ConfigError(
          fmt::format("host 0 at {} was started for {} hosts, but this one for {}: all hosts need "
                      "the same number",
                      at, error.peer_size, node.hosts));
  } catch (const wire::ProtocolError&) {
  }
  throw ConfigError(fmt::format(
      "host 0 at {} runs another version of smp-launch: install the same version on all hosts",
      at));
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
    throw ConfigError(fmt::format("{} '{}': expected ADDRESS:PORT of host 0, as in 10.0.0.1:29400",
                                  option, text));
  return endpoint;
}

std::string read_key_file(const std::string& path) {
  struct stat status {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  // It is read at each start; a FIFO could be waited for without end.
  if (is_there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    throw ConfigError(fmt::format("key file '{}' is not a regular file", path));
  const std::string text = files::read_text_file(path, "key file");
  constexpr const char* kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  const std::string key =
      first == text.npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  if (key.size() < kShortestKey)
    throw ConfigError(fmt::format(
        "key file '{}' has {} characters: expected {} or more, as from openssl rand -hex 32", path,
        key.size(), kShortestKey));
  if (is_there && (status.st_mode & S_IROTH) != 0)
    throw ConfigError(
        fmt::format("key file '{0}' is readable by everybody: run chmod 600 {0}", path));
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
    if (socket) {
      if (is_admitted(socket, at, key, node)) return socket;
      why = "host 0 closed the connection";
    }
    std::this_thread::sleep_for(kBetweenTries);
    left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  } while (left.count() > 0);
  throw std::runtime_error(fmt::format("host 0 was not reached at {} within {}: {}", at,
                                       hosts::duration_text(time), why));
}

}  // namespace smp::reach
