#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/participant.h"
#include "net/ofi_transport.h"
#include "smp/comm/net/fabric_options.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::bootstrap {

// The address of a rank, as it tells it to the others.
struct PeerAddress {
  int rank = 0;
  std::string host_identity;  // equal for ranks that can share memory
  std::string host_name, address;
  int listener_port = 0;  // TCP port for shrink() after a failure
  std::string settings;   // must be the same on all ranks
  std::string endpoint;   // FabricTransport::address()
};

// The result of the rendezvous of all hosts.
struct FabricRendezvous {
  std::vector<PeerAddress> peers;  // by rank
  // Rank 0: to each other rank; others: to rank 0, at index 0.
  std::vector<system::FileDescriptor> sockets;
  system::FileDescriptor listener;  // for shrink()
  net::OpenedTransport network;
  uint64_t secret = 0;  // that every message between hosts carries
};

// All ranks connect to rank 0 over TCP. Both sides authenticate with the job's key. Rank 0 compares
// the settings of all ranks and distributes the addresses, or an error. Throws CommError.
FabricRendezvous fabric_rendezvous(const Participant& self, const net::FabricOptions& options);

}  // namespace smp::bootstrap
