#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

// A rendezvous is how agents come to smp-launch where it cannot start them: on every host somebody
// (a person, Kubernetes, mpirun) starts smp-launch; one waits at an address that all of them know,
// the others connect to it. Both sides prove that they know the same key without showing it, and
// from then on the connection is the channel of an agent.
//
//   node   greeting, order, slots, hosts, nonce
//   leader  nonce, proof of both                  the node leaves when it is wrong
//   node   proof of both                         the leader hangs up when it is wrong
//   leader  verdict
//
// What follows is not encrypted.
namespace smp::reach {

struct RendezvousEndpoint {
  std::string host;  // a name or an address
  int port = 0;      // 0, for the leader alone: a free one
};

// "host:29400", "[fe80::1]:29400". Throws ConfigError, with `option`, for anything else.
RendezvousEndpoint parse_rendezvous_endpoint(const std::string& option, const std::string& text);

// The key in a file, without blanks around it. Throws ConfigError when it cannot be read, is
// shorter than 16 characters, or may be read by everybody.
std::string read_key_file(const std::string& path);

// What an agent says of itself.
struct RendezvousNode {
  int node_rank = 0;  // among the hosts; no two have the same
  int slots = 0;      // ranks that it will take; 0: not said
  int hosts = 0;      // of the job
};

struct JoinedNode {
  RendezvousNode node;
  system::FileDescriptor channel;
};

// The time was over before all had come; take() has those that came.
class RendezvousTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The side that waits. One thread.
class Rendezvous {
 public:
  // Listens at the place, which has to be an address of this host; at "::" for IPv4 too. Throws
  // ConfigError.
  Rendezvous(const RendezvousEndpoint& place, std::string key);
  ~Rendezvous();
  Rendezvous(Rendezvous&&) noexcept;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const std::string& key() const { return key_; }
  const std::string& address() const { return address_; }  // as digits
  int port() const { return port_; }

  // Waits until `count` nodes have come, who say what `self` says; in their order. Connections
  // that prove nothing are dropped, and hold up nobody. A number if `control_fd` (-1: none) asked
  // to end before that (asked_to_end). Where there is `goes_on()`, asks it after each that came,
  // when `events_fd` (-1: none) is readable, and every 100 ms, and returns, with fewer nodes,
  // where nobody comes any more. Throws RendezvousTimeout. Nobody is listened to afterwards.
  std::optional<int> gather(size_t count, const RendezvousNode& self,
                            std::chrono::milliseconds time, int control_fd,
                            const std::set<int>& ending_signals = {}, int events_fd = -1,
                            const std::function<bool()>& goes_on = {});
  const std::vector<JoinedNode>& arrived() const { return arrived_; }
  std::vector<JoinedNode> take() { return std::move(arrived_); }
  void close();  // to all, those that have come and were not taken too

 private:
  struct PendingPeer;

  void accept_some();
  bool hear(PendingPeer& peer, const RendezvousNode& self);
  void close_old();
  void stop_listening();

  std::string key_, address_;
  int port_ = 0;
  system::FileDescriptor listener_;
  std::vector<std::unique_ptr<PendingPeer>> pending_;
  std::vector<JoinedNode> arrived_;
};

// The side that comes: tries until it is let in. Throws std::runtime_error when the time is over,
// ConfigError when it is refused.
system::FileDescriptor join_rendezvous(const RendezvousEndpoint& place, const std::string& key,
                                       const RendezvousNode& node, std::chrono::milliseconds time);

}  // namespace smp::reach
