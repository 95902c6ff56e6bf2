#pragma once

#include <cstdint>
#include <string_view>

namespace smp {

// FNV-1a of 64 bits (Fowler, Noll, Vo): a hash that tells texts apart. It does not stop an
// attacker. Pure; any thread.
inline constexpr uint64_t kFnv1aStart = 0xcbf29ce484222325u;

// One step: the hash so far, and the next byte. A word of 8 bytes is hashed faster in one step than
// byte by byte, and to another value.
constexpr uint64_t fnv1a_step(uint64_t hash, uint64_t next) {
  return (hash ^ next) * 0x100000001b3u;
}

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = kFnv1aStart;
  for (const char c : text) hash = fnv1a_step(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace smp
