#pragma once

#include <memory>
#include <optional>
#include <string>

#include "smp/comm/fabric_options.h"
#include "transport.h"

namespace smp::shm {

// What a rank found when it looked for a network.
struct OpenedTransport {
  std::unique_ptr<Transport> transport;
  std::string provider;  // "net"
  std::string version;   // of libfabric
  bool is_of_ip = true;  // at the interface's address; others' cards have addresses of their own
  std::string card;      // the network card, where it was chosen among several
  std::string why;       // in words: which providers came first and are not here
  std::string caution;   // in words: what it cannot do that others can
  FabricProtocol protocol = FabricProtocol::kTagged;
  std::string why_protocol;  // in words
};

// An endpoint of libfabric at the interface that has `local_address` (an IP address). Tries efa,
// verbs;ofi_rxm, tcp, net and tcp;ofi_rxm in this order, or `pinned` alone unless it is empty, by
// `protocol`, or the one that is faster on it. Of several cards without IP addresses it is one near
// the rank, which is `local_rank` of its host. Throws std::runtime_error that says why each of them
// could not be used, and ConfigError where one could, but not by the protocol.
// `wants_registered`: it takes registered memory alone, whether its provider must or not, which
// shows on any machine what those do that must.
OpenedTransport open_ofi_transport(const std::string& local_address, const std::string& pinned,
                                   std::optional<FabricProtocol> protocol, int local_rank,
                                   bool wants_registered = false);

}  // namespace smp::shm
