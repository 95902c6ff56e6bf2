#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace smp::segment {

// Why the control groups of this process, whose memory is limited, leave no room for `bytes` more;
// nothing where they do. What the kernel takes back before it kills counts as room: cached files,
// its own caches, and swap. Looked at below `root` (tests).
std::optional<std::string> no_room_for(int64_t bytes, const std::string& root = "");

}  // namespace smp::segment
