#pragma once

#include "kernels/dropout_row.h"
#include "kernels/host_device.h"
#include "smp/plan/base/philox.h"

namespace smp::kernels {

// Columns whose factors are drawn at once: 16 Philox blocks side by side, of which each word gives
// two elements of 16 bits. Column c is lane c % 16 of the word halves of blocks 16 (c / 128) +
// lane.
inline constexpr int64_t kDropoutLanes = 16;
inline constexpr int64_t kDropoutColumns = 8 * kDropoutLanes;

// The fewest rounds of Philox4x32 that pass BigCrush (Salmon et al., table 2).
inline constexpr int kDropoutRounds = 7;

// Whether one element is kept; dropout_factors() draws the same for many.
SMP_HOST_DEVICE bool is_kept(const DropoutRow& row, int64_t col) {
  const auto at = static_cast<uint32_t>(col % kDropoutColumns);
  const uint32_t lane = at % kDropoutLanes, half = at / kDropoutLanes % 2;
  const uint32_t word = at / kDropoutLanes / 2;
  const auto first = static_cast<uint32_t>(col / kDropoutColumns * kDropoutLanes);
  constexpr uint32_t m0 = kPhiloxMultipliers[0], m1 = kPhiloxMultipliers[1];
  constexpr uint32_t w0 = kPhiloxWeyl[0], w1 = kPhiloxWeyl[1];
  uint32_t c[4] = {first + lane, row.row, row.head, row.sample};
  uint32_t k0 = row.key[0], k1 = row.key[1];
  for (int round = 0; round < kDropoutRounds; ++round) {
    const uint64_t a = uint64_t{m0} * c[0];
    const uint64_t b = uint64_t{m1} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(a);
    k0 += w0;
    k1 += w1;
  }
  return (c[word] >> (16 * half) & 0xffffu) >= row.threshold;
}

}  // namespace smp::kernels
