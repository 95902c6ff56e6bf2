#include "smp/plan/data/permutation.h"

#include <bit>

#include "smp/plan/base/check.h"
#include "smp/plan/base/philox.h"

namespace smp::data {
namespace {

constexpr uint32_t kFeistelRounds = 8;  // four changes of each half

uint64_t mask_of(int bits) { return (uint64_t{1} << bits) - 1; }

}  // namespace

Permutation::Permutation(uint64_t seed, uint32_t source, int64_t epoch, int64_t size)
    : key_(stream_key(seed, "data order")),
      source_(source),
      epoch_(static_cast<uint32_t>(epoch)),
      size_(static_cast<uint64_t>(size)) {
  SMP_CHECK(size >= 1 && size <= int64_t{1} << 62);
  const int bits = std::bit_width(size_ - 1);
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
}

uint64_t Permutation::rounds(uint64_t value) const {
  uint64_t low = value & mask_of(low_bits_), high = value >> low_bits_;
  for (uint32_t round = 0; round < kFeistelRounds; ++round) {
    uint64_t& changed = round % 2 == 0 ? high : low;
    const uint64_t other = round % 2 == 0 ? low : high;
    const PhiloxBlock block =
        philox_rounds({static_cast<uint32_t>(other), round, source_, epoch_}, key_);
    changed ^= block[0] & mask_of(round % 2 == 0 ? high_bits_ : low_bits_);
  }
  return high << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t place) const {
  auto value = static_cast<uint64_t>(place);
  do {
    value = rounds(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace smp::data
