#pragma once

#include "cuda/block.h"
#include "kernels/dropout.h"
#include "kernels/dropout_mask.h"

// Elementwise dropout. It drops the same elements as kernels/dropout_factors.h, which computes 128
// columns at a time.
namespace smp::cuda {

// 0 for a dropped element, else the factor.
template <typename C>
SMP_HOST_DEVICE C dropout_factor(const kernels::DropoutRow& row, int64_t col) {
  return kernels::is_kept(row, col) ? static_cast<C>(row.factor()) : C(0);
}

// y = drop(x); y may be x.
template <typename Block, typename T>
SMP_HOST_DEVICE void drop(const Block& block, const kernels::Dropout& dropout, int64_t rows,
                          int64_t cols, const T* x, T* y) {
  using C = kernels::Wide<T>;
  for_each_strip<T>(block, rows, cols, are_aligned(x, y), [&](auto width, int64_t row, int64_t c) {
    const kernels::DropoutRow of_row = dropout.row(row);
    auto strip = load(width, x + row * cols + c);
    for (int k = 0; k < width; ++k) {
      strip[k] *= dropout_factor<C>(of_row, dropout.first_col + c + k);
    }
    store(strip, y + row * cols + c);
  });
}

// y = x + drop(y + bias); bias may be null.
template <typename Block, typename T>
SMP_HOST_DEVICE void add_residual_dropped(const Block& block, const kernels::Dropout& dropout,
                                          int64_t rows, int64_t cols, const T* x, const T* bias,
                                          T* y) {
  using C = kernels::Wide<T>;
  for_each_strip<T>(
      block, rows, cols, are_aligned(x, bias, y), [&](auto width, int64_t row, int64_t c) {
        const kernels::DropoutRow of_row = dropout.row(row);
        const auto beside = load(width, x + row * cols + c);
        auto sum = load_with_bias(width, y + row * cols, bias, c);
        for (int k = 0; k < width; ++k) {
          sum[k] = beside[k] + sum[k] * dropout_factor<C>(of_row, dropout.first_col + c + k);
        }
        store(sum, y + row * cols + c);
      });
}

}  // namespace smp::cuda
