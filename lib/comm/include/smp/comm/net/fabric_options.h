#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "smp/comm/net/exchange.h"

namespace smp::net {

// How data longer than a message goes from the sender's memory to the receiver's. Tagged: as a
// tagged message, for which the receiver has posted a receive. Write: by RMA; the sender writes to
// memory that the receiver has exposed to it.
enum class FabricProtocol { kTagged, kWrite };
std::string_view name_of(FabricProtocol protocol);  // "tagged", "write"

struct FabricOptions {
  int rank = 0;
  int size = 1;
  std::string job_id;   // public name of the job, at most 64 characters
  std::string job_key;  // its secret; the ranks prove to each other that they know it
  std::chrono::milliseconds timeout{300000};  // of the rendezvous, and of each call
  std::optional<std::chrono::milliseconds> rendezvous_timeout;  // of the rendezvous, if different

  // Where rank 0 listens for the others. Port 0 (only at rank 0): any free port of its host.
  std::string master_address;
  int master_port = 0;
  // The job that shrink() makes does not call it.
  std::function<void(int port)> listening;  // called at rank 0 once it listens

  std::string provider;                    // of libfabric; empty: the first that works
  std::optional<FabricProtocol> protocol;  // the same on all ranks; none: the provider's faster one
  std::string subnet;     // "10.0.0.0/16": the network to use; empty: that of master_address
  ExchangeRule exchange;  // the same on all ranks
  int threads = 0;        // of this rank in long calls; 0: one, and more after lend_cpus()

  // A rank that sends no heartbeat for this long counts as lost, and the job fails.
  std::chrono::milliseconds silence{3000};
  int local_rank = 0;  // among the ranks of its host, which share its network cards
  // Ranks with equal identities share a host; empty: own_host_identity(). Tests make hosts with it.
  std::string host_identity;
  // Called with one line: over which provider and interface this rank talks, and why.
  std::function<void(const std::string&)> report;
};

}  // namespace smp::net
