#pragma once

#include <functional>
#include <optional>
#include <string>

#include "smp/comm/net/fabric_options.h"

namespace smp::net {

// The providers of libfabric to try, best first. Providers that are slower than TCP, or that only
// work inside a host, are left out.
inline constexpr const char* kProviders[] = {"efa", "verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};
// A provider that joins processes of one host. Shared memory is faster, so it is used only by name,
// to test the protocol between hosts on one machine.
inline constexpr const char* kInsideHost = "shm";
// Throws ConfigError: "SMP_FABRIC_PROVIDER=x: expected one of efa, ...".
void check_provider(const std::string& name);

// Opens a provider's network by the wanted protocol, or else by the faster one on it. `open` is
// told whether to use writes. It returns nothing, or the reason why it could not open. Returns the
// reason of the choice in words; nothing if the provider opens by neither protocol. Throws
// ConfigError if it opens, but not by the writes that are wanted.
std::optional<std::string> open_by_protocol(
    const std::string& provider, std::optional<FabricProtocol> wanted,
    const std::function<std::optional<std::string>(bool writes)>& open);

}  // namespace smp::net
