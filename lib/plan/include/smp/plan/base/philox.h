#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011): a pure function of (key, counter), so any rank can draw any element without
// drawing those before it. Pure; safe from any thread.
namespace smp {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Constants: Salmon et al., table 2 (Random123).
inline constexpr PhiloxKey kPhiloxMultipliers = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr PhiloxKey kPhiloxWeyl = {0x9E3779B9u, 0xBB67AE85u};

// philox4x32_10 in a form that loops inline.
inline PhiloxBlock philox_rounds(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const uint64_t b = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kPhiloxWeyl[0];
    key[1] += kPhiloxWeyl[1];
  }
  return counter;
}

PhiloxBlock philox4x32_10(const PhiloxBlock& counter, const PhiloxKey& key);

// The key of the stream `name` of a job with this seed: one Philox block of the seed over the
// FNV-1a hash of the name.
PhiloxKey stream_key(uint64_t seed, std::string_view name);

}  // namespace smp
