#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/fabric_transport.h"
#include "smp/comm/net/fabric_options.h"

namespace smp::net {

// The network that a rank has opened.
struct OpenedTransport {
  std::unique_ptr<FabricTransport> transport;
  std::string provider;  // "net"
  std::string version;   // of libfabric
  bool is_of_ip = true;  // it uses the interface's address; other cards have their own
  std::string nic;       // the network card, where it was chosen among several
  std::string why;       // in words: the better providers, and why they are not available
  std::string caution;   // in words: a weakness of the provider
  FabricProtocol protocol = FabricProtocol::kTagged;
  std::string why_protocol;  // in words
};

// Opens an endpoint of libfabric at the interface that has `local_address` (an IP address). It
// tries efa, verbs;ofi_rxm, tcp, net and tcp;ofi_rxm in this order, or only `pinned` unless that is
// empty. It uses `protocol`, or else the provider's faster one. Among several cards without IP
// addresses it chooses one near the rank, whose number on its host is `local_rank`. Throws
// std::runtime_error with the reason for each provider, and ConfigError if a provider works, but
// not by the protocol.
//
// `wants_registered`: it takes registered memory only, even if its provider does not require that.
// So every machine can test the code for providers that do.
OpenedTransport open_ofi_transport(const std::string& local_address, const std::string& pinned,
                                   std::optional<FabricProtocol> protocol, int local_rank,
                                   bool wants_registered = false);

}  // namespace smp::net
