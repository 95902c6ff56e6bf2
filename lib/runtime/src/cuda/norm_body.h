#pragma once

#include <cmath>

#include "cuda/block.h"
#include "functions/kernels.h"

// The norms of functions/kernels.h, a block to each row.
namespace smp::cuda {

template <typename Block, typename T>
SMP_ANYWHERE void write_normal_row(const Block& block, int64_t cols, const T* x, Wide<T> mean,
                                   Wide<T> rstd, const T* weight, const T* bias, T* y) {
  using C = Wide<T>;
  for_each_column(block, cols, [&](int64_t c) {
    const C shift = bias != nullptr ? C(bias[c]) : C(0);
    y[c] = T((C(x[c]) - mean) * rstd * C(weight[c]) + shift);
  });
}

template <typename Block, typename T>
SMP_ANYWHERE void norm_forward(Block& block, const NormShape& shape, Wide<T> epsilon, const T* x,
                               const T* weight, const T* bias, T* y, Wide<T>* stats) {
  using C = Wide<T>;
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  for_each_row(block, shape.rows, [&](int64_t row) {
    const T* const from = x + row * cols;
    C mean = 0;
    if (shape.centered) {
      C sum = 0;
      for_each_column(block, cols, [&](int64_t c) { sum += C(from[c]); });
      mean = block.sum(sum) / C(cols);
    }
    C squares = 0;
    for_each_column(block, cols, [&](int64_t c) {
      const C away = C(from[c]) - mean;
      squares += away * away;
    });
    const C rstd = C(1) / std::sqrt(block.sum(squares) / C(cols) + epsilon);
    if (block.thread() == 0) {
      if (shape.centered) stats[row * per_row] = mean;
      stats[row * per_row + per_row - 1] = rstd;
    }
    write_normal_row(block, cols, from, mean, rstd, weight, bias, y + row * cols);
  });
}

template <typename Block, typename T>
SMP_ANYWHERE void norm_apply(const Block& block, const NormShape& shape, const T* x,
                             const Wide<T>* stats, const T* weight, const T* bias, T* y) {
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  for_each_row(block, shape.rows, [&](int64_t row) {
    const Wide<T>* const of_row = stats + row * per_row;
    write_normal_row(block, cols, x + row * cols, shape.centered ? of_row[0] : Wide<T>(0),
                     of_row[per_row - 1], weight, bias, y + row * cols);
  });
}

// dx alone; it may be dy. What it adds to the weight's gradient is the column sums of
// norm_weight_term().
template <typename Block, typename T>
SMP_ANYWHERE void norm_input_gradient(Block& block, const NormShape& shape, const T* dy, const T* x,
                                      const Wide<T>* stats, const T* weight, const T* residual,
                                      T* dx) {
  using C = Wide<T>;
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  for_each_row(block, shape.rows, [&](int64_t row) {
    const int64_t at = row * cols;
    const C mean = shape.centered ? stats[row * per_row] : C(0);
    const C rstd = stats[row * per_row + per_row - 1];
    C sum = 0, product = 0;
    for_each_column(block, cols, [&](int64_t c) {
      const C scaled = C(dy[at + c]) * C(weight[c]);
      sum += scaled;
      product += scaled * (C(x[at + c]) - mean) * rstd;
    });
    sum = shape.centered ? block.sum(sum) / C(cols) : C(0);
    product = block.sum(product) / C(cols);
    for_each_column(block, cols, [&](int64_t c) {
      const C normal = (C(x[at + c]) - mean) * rstd;
      const C beside = residual != nullptr ? C(residual[at + c]) : C(0);
      dx[at + c] = T(beside + rstd * (C(dy[at + c]) * C(weight[c]) - sum - normal * product));
    });
  });
}

template <typename T>
SMP_ANYWHERE Wide<T> norm_weight_term(const NormShape& shape, const T* dy, const T* x,
                                      const Wide<T>* stats, int64_t row, int64_t col) {
  using C = Wide<T>;
  const int64_t at = row * shape.cols + col, per_row = shape.stats_per_row();
  const C mean = shape.centered ? stats[row * per_row] : C(0);
  return C(dy[at]) * (C(x[at]) - mean) * stats[row * per_row + per_row - 1];
}

}  // namespace smp::cuda
