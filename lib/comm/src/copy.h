#pragma once

#include <cstddef>
#include <cstdint>

namespace smp::shm {

// Results of more bytes than this cannot stay in the cache.
inline constexpr int64_t kStreamBytes = 8 << 20;

// Copies `bytes` bytes; nothing when to == from. `stream` writes around the cache, which saves
// reading each line of a large result before it is overwritten.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool stream = false);

}  // namespace smp::shm
