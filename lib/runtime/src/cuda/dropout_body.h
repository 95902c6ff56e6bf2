#pragma once

#include "cuda/block.h"
#include "functions/dropout.h"
#include "functions/dropout_places.h"

// Dropout by element: the elements that functions/dropout_factors.h lets go, 128 columns at a time.
namespace smp::cuda {

// 0 or the factor.
template <typename C>
SMP_ANYWHERE C dropout_factor(const DropoutRow& row, int64_t col) {
  return is_kept(row, col) ? static_cast<C>(row.factor()) : C(0);
}

// y = drop(x); y may be x.
template <typename Block, typename T>
SMP_ANYWHERE void drop(const Block& block, const Dropout& dropout, int64_t rows, int64_t cols,
                       const T* x, T* y) {
  using C = Wide<T>;
  for_each(block, rows * cols, [&](int64_t i) {
    y[i] = T(C(x[i]) * dropout_factor<C>(dropout.row(i / cols), dropout.first_col + i % cols));
  });
}

// y = x + drop(y + bias); bias may be null.
template <typename Block, typename T>
SMP_ANYWHERE void add_residual_dropped(const Block& block, const Dropout& dropout, int64_t rows,
                                       int64_t cols, const T* x, const T* bias, T* y) {
  using C = Wide<T>;
  for_each(block, rows * cols, [&](int64_t i) {
    const int64_t c = i % cols;
    const C shift = bias != nullptr ? C(bias[c]) : C(0);
    const C factor = dropout_factor<C>(dropout.row(i / cols), dropout.first_col + c);
    y[i] = T(C(x[i]) + (C(y[i]) + shift) * factor);
  });
}

}  // namespace smp::cuda
