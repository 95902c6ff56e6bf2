#pragma once

#include <cstdint>

#include "cuda/block.h"

// Sums over rows in two launches, in an order that the launch's size does not change: first of
// every kRowsOfPartial rows, then of these.
namespace smp::cuda {

inline constexpr int64_t kRowsOfPartial = 64;

SMP_ANYWHERE int64_t partials_of(int64_t rows) {
  return (rows + kRowsOfPartial - 1) / kRowsOfPartial;
}

// partials [partials_of(rows), cols]; value(row, col).
template <typename Block, typename C, typename Value>
SMP_ANYWHERE void column_partials(const Block& block, int64_t rows, int64_t cols,
                                  const Value& value, C* partials) {
  for_each(block, partials_of(rows) * cols, [&](int64_t i) {
    const int64_t first = i / cols * kRowsOfPartial, col = i % cols;
    const int64_t end = first + kRowsOfPartial < rows ? first + kRowsOfPartial : rows;
    C sum = 0;
    for (int64_t row = first; row < end; ++row) sum += value(row, col);
    partials[i] = sum;
  });
}

// total[c] += their sum.
template <typename Block, typename C>
SMP_ANYWHERE void add_partials(const Block& block, int64_t count, int64_t cols, const C* partials,
                               C* total) {
  for_each(block, cols, [&](int64_t col) {
    C sum = 0;
    for (int64_t p = 0; p < count; ++p) sum += partials[p * cols + col];
    total[col] += sum;
  });
}

}  // namespace smp::cuda
