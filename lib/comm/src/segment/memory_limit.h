#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace smp::segment {

// The reason why the memory limits of this process's control groups leave no room for `bytes` more;
// nothing if they do. Memory that the kernel reclaims before it kills counts as room: cached files,
// its own caches, and swap. The files lie below `root` (tests).
std::optional<std::string> no_room_for(int64_t bytes, const std::string& root = "");

}  // namespace smp::segment
