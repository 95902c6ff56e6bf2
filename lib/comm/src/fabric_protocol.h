#pragma once

#include <functional>
#include <optional>
#include <string>

#include "smp/comm/fabric.h"

namespace smp::shm {

// Opens a provider's network by the protocol that is wanted, or the one that is faster on it.
// `open` is told whether it shall write, and returns nothing or why it could not. Returns in words
// why it is this protocol; nothing if the provider opens by none. Throws ConfigError where it
// opens, but not by the writes that are wanted.
std::optional<std::string> open_by_protocol(
    const std::string& provider, std::optional<FabricProtocol> wanted,
    const std::function<std::optional<std::string>(bool writes)>& open);

}  // namespace smp::shm
