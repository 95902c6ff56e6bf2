#include "xxh64.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

// The algorithm in words: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH64 algorithm
// description"; its step numbers stand below.
namespace smp {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr int64_t kStripeBytes = 32;

template <typename Word>
uint64_t word_at(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t round_of(uint64_t accumulator, uint64_t lane) {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}

uint64_t merged(uint64_t hash, uint64_t accumulator) {
  return (hash ^ round_of(0, accumulator)) * kPrime1 + kPrime4;
}

}  // namespace

uint64_t xxh64(const void* data, int64_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  int64_t left = bytes;
  uint64_t hash = kPrime5;  // short input skips steps 1 to 3
  if (left >= kStripeBytes) {
    std::array<uint64_t, 4> lanes = {kPrime1 + kPrime2, kPrime2, 0, uint64_t{0} - kPrime1};  // 1
    for (; left >= kStripeBytes; left -= kStripeBytes) {                                     // 2
      for (uint64_t& lane : lanes) {
        lane = round_of(lane, word_at<uint64_t>(at));
        at += 8;
      }
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);  // 3
    for (const uint64_t lane : lanes) hash = merged(hash, lane);
  }
  hash += static_cast<uint64_t>(bytes);    // 4
  for (; left >= 8; left -= 8, at += 8) {  // 5
    hash = std::rotl(hash ^ round_of(0, word_at<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  for (; left >= 4; left -= 4, at += 4) {
    hash = std::rotl(hash ^ word_at<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
  }
  for (; left > 0; --left, ++at) {
    hash = std::rotl(hash ^ word_at<uint8_t>(at) * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ hash >> 33) * kPrime2;  // 6
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace smp
