#include "pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace smp {
namespace {

// A whole number as a float of so many bits of fraction. Those of more than they hold do not occur.
uint64_t float_bits(int value, int fraction_bits, int exponent_bias) {
  if (value == 0) return 0;
  const auto whole = static_cast<uint64_t>(value);
  const int exponent = std::bit_width(whole) - 1;
  const uint64_t fraction = exponent <= fraction_bits ? whole << (fraction_bits - exponent)
                                                      : whole >> (exponent - fraction_bits);
  return (static_cast<uint64_t>(exponent + exponent_bias) << fraction_bits) +
         (fraction - (uint64_t{1} << fraction_bits));
}

// Mixed, lest what is a round number of elements or ranks away look alike (splitmix64's finish,
// Steele, Lea and Flood 2014).
uint64_t mixed(int64_t i, int rank) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

int bit(int64_t i, int rank) { return static_cast<int>(mixed(i, rank) >> 63); }

}  // namespace

// At most one rank gives 2 to a product, and all give the same to an average, so that every type
// holds them.
int Pattern::given(int rank, int64_t i) const {
  switch (reduction_) {
    case comm::ReduceOp::kProduct:
      return mixed(i, 0) % static_cast<uint64_t>(2 * ranks_) == static_cast<uint64_t>(rank) ? 2 : 1;
    case comm::ReduceOp::kAverage: return bit(i, 0);
    default: return bit(i, rank);
  }
}

int Pattern::reduced(int64_t i) const {
  if (reduction_ == comm::ReduceOp::kAverage) return given(0, i);
  int result = given(0, i);
  for (int rank = 1; rank < ranks_; ++rank) {
    const int next = given(rank, i);
    switch (reduction_) {
      case comm::ReduceOp::kMax: result = std::max(result, next); break;
      case comm::ReduceOp::kMin: result = std::min(result, next); break;
      case comm::ReduceOp::kProduct: result *= next; break;
      default: result += next;
    }
  }
  return result;
}

uint64_t Pattern::bits_of(int value) const {
  switch (dtype_) {
    case DType::kF64: return float_bits(value, 52, 1023);
    case DType::kF32: return float_bits(value, 23, 127);
    case DType::kF16: return float_bits(value, 10, 15);
    case DType::kBF16: return float_bits(value, 7, 127);
    default: return static_cast<uint64_t>(value);
  }
}

// The low bytes of a word come first on the processors that smp runs on.
static_assert(std::endian::native == std::endian::little);

void Pattern::write(std::byte* at, int64_t i, int value) const {
  const auto element = static_cast<size_t>(bytes_of(dtype_));
  const uint64_t bits = bits_of(value);
  std::memcpy(at + static_cast<size_t>(i) * element, &bits, element);
}

bool Pattern::is(const std::byte* at, int64_t i, int value) const {
  const auto element = static_cast<size_t>(bytes_of(dtype_));
  const uint64_t bits = bits_of(value);
  return std::memcmp(at + static_cast<size_t>(i) * element, &bits, element) == 0;
}

}  // namespace smp
