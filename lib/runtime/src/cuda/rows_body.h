#pragma once

#include "cuda/block.h"

// Elementwise sums, and rows of a table by token.
namespace smp::cuda {

// y += x + bias in each row; bias may be null.
template <typename Block, typename T>
SMP_HOST_DEVICE void add_residual(const Block& block, int64_t rows, int64_t cols, const T* x,
                                  const T* bias, T* y) {
  for_each_strip<T>(block, rows, cols, are_aligned(x, bias, y),
                    [&](auto width, int64_t row, int64_t c) {
                      const auto beside = load(width, x + row * cols + c);
                      auto sum = load_with_bias(width, y + row * cols, bias, c);
                      for (int k = 0; k < width; ++k) sum[k] = beside[k] + sum[k];
                      store(sum, y + row * cols + c);
                    });
}

// sums += x
template <typename Block, typename T>
SMP_HOST_DEVICE void accumulate(const Block& block, int64_t count, const T* x,
                                kernels::Wide<T>* sums) {
  for_each_strip<T>(block, 1, count, are_aligned(x, sums), [&](auto width, int64_t, int64_t i) {
    const auto more = load(width, x + i);
    auto sum = load(width, sums + i);
    for (int k = 0; k < width; ++k) sum[k] += more[k];
    store(sum, sums + i);
  });
}

// y[n] = table[ids[n] - begin], or zeros where another rank has the row.
template <typename Block, typename T>
SMP_HOST_DEVICE void take_rows(const Block& block, int64_t count, int64_t cols, int64_t begin,
                               int64_t table_rows, const int64_t* ids, const T* table, T* y) {
  for_each_strip<T>(
      block, count, cols, are_aligned(table, y), [&](auto width, int64_t n, int64_t c) {
        const int64_t row = ids[n] - begin;
        const bool is_here = row >= 0 && row < table_rows;
        store(load_or_zeros(width, is_here ? table : nullptr, row * cols + c), y + n * cols + c);
      });
}

// table[ids[n] - begin] += x[n]. `sorted`: the ids in ascending order; order[k]: the index of
// sorted[k] in ids. One block per distinct id adds that id's rows in the order of n, so the result
// does not depend on the launch.
template <typename Block, typename T>
SMP_HOST_DEVICE void add_rows(const Block& block, int64_t count, int64_t cols, int64_t begin,
                              int64_t table_rows, const int64_t* sorted, const int64_t* order,
                              const T* x, kernels::Wide<T>* table) {
  const bool aligned = are_aligned(x, table);
  for_each_row(block, count, [&](int64_t k) {
    const int64_t row = sorted[k] - begin;
    if (row < 0 || row >= table_rows || (k > 0 && sorted[k - 1] == sorted[k])) return;
    int64_t end = k + 1;  // searched before the loop, because a loop of known length can read ahead
    while (end < count && sorted[end] == sorted[k]) ++end;
    for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
      Strip<kernels::Wide<T>, width> sum = {};
      for (int64_t n = k; n < end; ++n) {
        const auto more = load(width, x + order[n] * cols + c);
        for (int j = 0; j < width; ++j) sum[j] += more[j];
      }
      auto in_table = load(width, table + row * cols + c);
      for (int j = 0; j < width; ++j) in_table[j] += sum[j];
      store(in_table, table + row * cols + c);
    });
  });
}

}  // namespace smp::cuda
