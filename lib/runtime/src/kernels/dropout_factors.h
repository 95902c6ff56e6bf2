#pragma once

#include <cstdint>

#include "kernels/dropout_mask.h"
#include "kernels/vector_math.h"

namespace smp::kernels {

// 0 or `factor` for each of the kDropoutColumns columns from `first_col` on, a multiple of that.
template <typename T>
SMP_INLINE void dropout_factors(const DropoutRow& row, int64_t first_col, T factor, T* factors) {
  const auto first = static_cast<uint32_t>(first_col / kDropoutColumns * kDropoutLanes);
  uint32_t words[4][kDropoutLanes];
#pragma omp simd
  for (uint32_t lane = 0; lane < kDropoutLanes; ++lane) {
    uint32_t c0 = first + lane, c1 = row.row, c2 = row.head, c3 = row.sample;
    uint32_t k0 = row.key[0], k1 = row.key[1];
#pragma GCC unroll 7
    for (int round = 0; round < kDropoutRounds; ++round) {
      const uint64_t a = uint64_t{kPhiloxMultipliers[0]} * c0;
      const uint64_t b = uint64_t{kPhiloxMultipliers[1]} * c2;
      c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(b);
      c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(a);
      k0 += kPhiloxWeyl[0];
      k1 += kPhiloxWeyl[1];
    }
    words[0][lane] = c0;
    words[1][lane] = c1;
    words[2][lane] = c2;
    words[3][lane] = c3;
  }
  const auto threshold = static_cast<int32_t>(row.threshold);
  for (int64_t word = 0; word < 4; ++word) {
    T* low = factors + 2 * word * kDropoutLanes;
    T* high = low + kDropoutLanes;
#pragma omp simd
    for (int64_t lane = 0; lane < kDropoutLanes; ++lane) {
      const auto below = static_cast<int32_t>(words[word][lane] & 0xffffu);
      const auto above = static_cast<int32_t>(words[word][lane] >> 16);
      low[lane] = below < threshold ? T(0) : factor;
      high[lane] = above < threshold ? T(0) : factor;
    }
  }
}

}  // namespace smp::kernels
