#include "smp/plan/base/philox.h"

#include "smp/plan/base/fnv1a.h"

namespace smp {

PhiloxBlock philox4x32_10(const PhiloxBlock& counter, const PhiloxKey& key) {
  return philox_rounds(counter, key);
}

PhiloxKey stream_key(uint64_t seed, std::string_view name) {
  const uint64_t hash = fnv1a(name);
  const PhiloxBlock counter = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), 0,
                               0};
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxBlock block = philox4x32_10(counter, key);
  return {block[0], block[1]};
}

}  // namespace smp
