#include "smp/plan/base/philox.h"

#include "smp/plan/base/philox_rounds.h"

namespace smp {

PhiloxBlock philox4x32_10(const PhiloxBlock& counter, const PhiloxKey& key) {
  return philox_rounds(counter, key);
}

PhiloxKey stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  const PhiloxBlock counter = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), 0,
                               0};
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxBlock block = philox4x32_10(counter, key);
  return {block[0], block[1]};
}

}  // namespace smp
