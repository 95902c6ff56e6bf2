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

PhiloxBlock philox4x32_10(const PhiloxBlock& counter, const PhiloxKey& key);

// The key of the stream `name` of a job with this seed: one Philox block of the seed over the
// FNV-1a hash of the name.
PhiloxKey stream_key(uint64_t seed, std::string_view name);

}  // namespace smp
