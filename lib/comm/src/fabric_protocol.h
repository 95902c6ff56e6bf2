#pragma once

#include <functional>
#include <optional>
#include <string>

#include "smp/comm/fabric_options.h"

namespace smp::shm {

// Of libfabric, best first. Not those that are slower than TCP or that only work inside a host.
inline constexpr const char* kProviders[] = {"efa", "verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};
// Joins processes of one host, whose own path is faster: taken by its name alone, to try what runs
// between hosts on one machine.
inline constexpr const char* kInsideHost = "shm";
// Throws ConfigError: "SMP_FABRIC_PROVIDER=x: smp knows efa, ...".
void check_provider(const std::string& name);

// Opens a provider's network by the protocol that is wanted, or the one that is faster on it.
// `open` is told whether it shall write, and returns nothing or why it could not. Returns in words
// why it is this protocol; nothing if the provider opens by none. Throws ConfigError where it
// opens, but not by the writes that are wanted.
std::optional<std::string> open_by_protocol(
    const std::string& provider, std::optional<FabricProtocol> wanted,
    const std::function<std::optional<std::string>(bool writes)>& open);

}  // namespace smp::shm
