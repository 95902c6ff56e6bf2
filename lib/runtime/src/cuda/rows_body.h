#pragma once

#include "cuda/block.h"
#include "functions/wide.h"

// Sums by element, and rows of a table by token.
namespace smp::cuda {

// y += x + bias in each row; bias may be null.
template <typename Block, typename T>
SMP_ANYWHERE void add_residual(const Block& block, int64_t rows, int64_t cols, const T* x,
                               const T* bias, T* y) {
  using C = Wide<T>;
  for_each(block, rows * cols, [&](int64_t i) {
    const C shift = bias != nullptr ? C(bias[i % cols]) : C(0);
    y[i] = T(C(x[i]) + (C(y[i]) + shift));
  });
}

// sums += x
template <typename Block, typename T>
SMP_ANYWHERE void accumulate(const Block& block, int64_t count, const T* x, Wide<T>* sums) {
  for_each(block, count, [&](int64_t i) { sums[i] += Wide<T>(x[i]); });
}

// y[n] = table[ids[n] - begin], or zeros where another rank has the row.
template <typename Block, typename T>
SMP_ANYWHERE void take_rows(const Block& block, int64_t count, int64_t cols, int64_t begin,
                            int64_t table_rows, const int64_t* ids, const T* table, T* y) {
  for_each(block, count * cols, [&](int64_t i) {
    const int64_t row = ids[i / cols] - begin;
    y[i] = row >= 0 && row < table_rows ? table[row * cols + i % cols] : T(0);
  });
}

// table[ids[n] - begin] += x[n], each row's in the order of n, whatever the launch: `sorted` are
// the ids in ascending order, and order[k] is where sorted[k] was. A block to each id that is the
// first of its kind.
template <typename Block, typename T>
SMP_ANYWHERE void add_rows(const Block& block, int64_t count, int64_t cols, int64_t begin,
                           int64_t table_rows, const int64_t* sorted, const int64_t* order,
                           const T* x, Wide<T>* table) {
  for_each_row(block, count, [&](int64_t k) {
    const int64_t row = sorted[k] - begin;
    if (row < 0 || row >= table_rows || (k > 0 && sorted[k - 1] == sorted[k])) return;
    for_each_column(block, cols, [&](int64_t c) {
      Wide<T> sum = 0;
      for (int64_t n = k; n < count && sorted[n] == sorted[k]; ++n) {
        sum += Wide<T>(x[order[n] * cols + c]);
      }
      table[row * cols + c] += sum;
    });
  });
}

}  // namespace smp::cuda
