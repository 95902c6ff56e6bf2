#include "cost/matmul_seconds.h"

#include <algorithm>
#include <cmath>

#include "links/link_model.h"
#include "links/rate.h"
#include "smp/plan/base/check.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

// An output tile of one thread block, and the share of the rate that it reaches: small ones read
// their operands more often.
struct Tile {
  double m, n, efficiency;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95},
                           {128, 64, 0.80}, {64, 128, 0.80}, {64, 64, 0.62}};
// A tile's start and end (filling the pipeline of loads, writing the result), as columns of k.
constexpr double kTileStart = 128;
constexpr double kSplits[] = {1, 2, 4, 8};
// Rows that are no multiple of 16 bytes cannot be loaded for tensor cores at once.
constexpr double kMisaligned = 2.0;

// Large matmuls in fp8 reach 71 % of an H100's peak where those in bf16 reach 80 %
// (stas00/ml-engineering, compute/accelerator).
constexpr double kFp8Share = 0.71 / 0.80;

double padded(double value, double to) { return std::ceil(value / to) * to; }

bool aligned(double elements, double element_bytes) {
  return std::fmod(elements * element_bytes, 16) == 0;
}

}  // namespace

MatmulRates matmul_rates(const ClusterSpec& cluster, Precision precision) {
  MatmulRates rates;
  rates.multiprocessors = static_cast<double>(cluster.multiprocessors);
  rates.memory_bytes_per_s = cluster.memory_bytes_per_s;
  switch (precision) {
    case Precision::kFp32:
      rates.flops_per_s = cluster.fp32_flops_per_s;
      rates.element_bytes = 4;
      break;
    case Precision::kFp64:  // twice the width, half the lanes
      rates.flops_per_s = cluster.fp32_flops_per_s / 2;
      rates.element_bytes = 8;
      break;
    case Precision::kBf16:
    case Precision::kFp16: rates.flops_per_s = cluster.half_flops_per_s; break;
    case Precision::kFp8:
      rates.flops_per_s =
          cluster.fp8_flops_per_s > 0 ? cluster.fp8_flops_per_s : cluster.half_flops_per_s;
      rates.element_bytes = 1;
      break;
    case Precision::kNvfp4:
      rates.flops_per_s = cluster.fp4_flops_per_s;
      rates.element_bytes = kNvfp4Bytes;
      break;
  }
  const bool has_fp8 = is_narrow(precision) && cluster.fp8_flops_per_s > 0;
  const bool fp4 = precision == Precision::kNvfp4 && cluster.fp4_matmul_efficiency > 0;
  const double fp8 = cluster.fp8_matmul_efficiency > 0 ? cluster.fp8_matmul_efficiency
                                                       : kFp8Share * cluster.matmul_efficiency;
  rates.flops_per_s *= fp4       ? cluster.fp4_matmul_efficiency
                       : has_fp8 ? fp8
                                 : cluster.matmul_efficiency;
  return rates;
}

double matmul_s(const MatmulRates& rates, double batch, double m, double n, double k) {
  if (rates.flops_per_s <= 0) return 0;
  if (rates.multiprocessors <= 0) return 2 * batch * m * n * k / rates.flops_per_s;
  const double one = rates.flops_per_s / rates.multiprocessors;  // of a multiprocessor
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = batch * std::ceil(m / tile.m) * std::ceil(n / tile.n);
    for (const double split : kSplits) {
      if (split > 1 && (tiles >= rates.multiprocessors || k / split < 4 * kTileStart)) break;
      const double waves = std::ceil(tiles * split / rates.multiprocessors);
      const double of_tile =
          2 * tile.m * tile.n * (padded(k / split, 32) + kTileStart) / (one * tile.efficiency);
      // Partial sums are written and read in fp32.
      const double merge =
          split > 1 ? links::over(8 * split * batch * m * n, rates.memory_bytes_per_s) : 0;
      const double seconds = waves * of_tile + merge;
      if (best == 0 || seconds < best) best = seconds;
    }
  }
  if (!aligned(k, rates.element_bytes) || !aligned(n, rates.element_bytes)) best *= kMisaligned;
  const double touched = rates.element_bytes * batch * (m * k + k * n + m * n);
  return std::max(best, links::over(touched, rates.memory_bytes_per_s));
}

}  // namespace smp::cost
