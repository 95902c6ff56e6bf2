#pragma once

#include <cstdint>

#include "cuda/block.h"

// Column sums in two launches. The first one sums groups of kRowsOfPartial rows, the second one
// sums these partial sums. The order of additions does not depend on the size of the launch.
namespace smp::cuda {

inline constexpr int64_t kRowsOfPartial = 32;
inline constexpr int64_t kRowsAtOnce = 8;  // rows that a thread reads before it adds them

SMP_HOST_DEVICE int64_t partials_of(int64_t rows) {
  return (rows + kRowsOfPartial - 1) / kRowsOfPartial;
}

// partials [partials_of(rows), cols]; value(row, col).
template <typename Block, typename C, typename Value>
SMP_HOST_DEVICE void column_partials(const Block& block, int64_t rows, int64_t cols,
                                     const Value& value, C* partials) {
  for_each(block, partials_of(rows) * cols, [&](int64_t i) {
    const int64_t partial = i / cols, col = i % cols;
    int64_t row = partial * kRowsOfPartial;
    const int64_t end = row + kRowsOfPartial < rows ? row + kRowsOfPartial : rows;
    C sum = 0;
    for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
      C values[kRowsAtOnce];
      for (int64_t k = 0; k < kRowsAtOnce; ++k) values[k] = value(row + k, col);
      for (int64_t k = 0; k < kRowsAtOnce; ++k) sum += values[k];
    }
    for (; row < end; ++row) sum += value(row, col);
    partials[i] = sum;
  });
}

// total[c] += the sum of column c's partials. One block per column.
template <typename Block, typename C>
SMP_HOST_DEVICE void add_partials(Block& block, int64_t count, int64_t cols, const C* partials,
                                  C* total) {
  for_each_row(block, cols, [&](int64_t col) {
    C sum = 0;
    for_each_column(block, count, [&](int64_t p) { sum += partials[p * cols + col]; });
    sum = block.sum(sum);
    if (block.thread() == 0) total[col] += sum;
  });
}

}  // namespace smp::cuda
