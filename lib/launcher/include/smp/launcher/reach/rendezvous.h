#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/handshake/acceptor.h"

// A rendezvous brings agents to a smp-launch that cannot start them. A person, Kubernetes or mpirun
// starts smp-launch on every host. The one of node rank 0 leads: it listens at an endpoint that all
// of them know, and the others connect to it. The handshake of smp/rendezvous proves that both
// sides know the same key; the node's signed message says how many ranks it takes, and the leader's
// says whether the node is admitted. From then on the connection is the channel of an agent.
//
// The messages are not encrypted.
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

// What a node tells the leader.
struct RendezvousNode {
  int node_rank = 0;  // among the hosts; no two have the same
  int slots = 0;      // ranks that it will take; 0: not said
  int hosts = 0;      // of the job
};

struct JoinedNode {
  RendezvousNode node;
  system::FileDescriptor channel;
};

// The time-out passed before all nodes had come. take() has those that came.
class RendezvousTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The leader's side. One thread.
class Rendezvous {
 public:
  // Listens at an address of this host; "::" stands for IPv4 too. Throws ConfigError.
  Rendezvous(const RendezvousEndpoint& endpoint, std::string key);

  const std::string& key() const { return key_; }
  const std::string& address() const { return address_; }  // as digits
  int port() const { return port_; }

  // Waits until `count` nodes have come that say what `self` says, and sorts them by node rank.
  // Connections that prove nothing are rejected, and delay nobody. Returns a number if `control_fd`
  // (-1: none) asked to end before that (asked_to_end). `goes_on()` is asked after each node, when
  // `events_fd` (-1: none) is readable, and every 100 ms; false ends the wait with fewer nodes.
  // Throws RendezvousTimeout. Stops listening before it returns.
  std::optional<int> gather(size_t count, const RendezvousNode& self,
                            std::chrono::milliseconds time, int control_fd,
                            const std::set<int>& ending_signals = {}, int events_fd = -1,
                            const std::function<bool()>& goes_on = {});
  const std::vector<JoinedNode>& arrived() const { return arrived_; }
  std::vector<JoinedNode> take() { return std::move(arrived_); }
  void close();  // all connections, those of nodes that were not taken too

 private:
  void admit(handshake::Acceptor::AcceptedPeer peer, const RendezvousNode& self);

  std::string key_, address_;
  int port_ = 0;
  system::FileDescriptor listener_;
  std::vector<JoinedNode> arrived_;
};

// A node's side: tries until the leader lets it in. Throws std::runtime_error after `time`, and
// ConfigError when the leader refuses it.
system::FileDescriptor join_rendezvous(const RendezvousEndpoint& endpoint, const std::string& key,
                                       const RendezvousNode& node, std::chrono::milliseconds time);

}  // namespace smp::reach
