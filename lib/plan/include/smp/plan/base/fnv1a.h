#pragma once

#include <cstdint>
#include <string_view>

namespace smp {

// FNV-1a of 64 bits (Fowler, Noll, Vo): a hash that tells texts apart. It does not stop an
// attacker. Pure; any thread.
constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace smp
