#pragma once

#include <cmath>

#include "cuda/block.h"
#include "kernels/kernels.h"

// The norms of kernels/kernels.h. One block per row.
namespace smp::cuda {

template <typename Block, typename T>
SMP_HOST_DEVICE void write_normal_row(const Block& block, int64_t cols, bool aligned, const T* x,
                                      kernels::Wide<T> mean, kernels::Wide<T> rstd, const T* weight,
                                      const T* bias, T* y) {
  for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
    auto strip = load(width, x + c);
    const auto scale = load(width, weight + c), shift = load_or_zeros(width, bias, c);
    for (int k = 0; k < width; ++k) strip[k] = (strip[k] - mean) * rstd * scale[k] + shift[k];
    store(strip, y + c);
  });
}

template <typename Block, typename T>
SMP_HOST_DEVICE void norm_forward(Block& block, const kernels::NormShape& shape,
                                  kernels::Wide<T> epsilon, const T* x, const T* weight,
                                  const T* bias, T* y, kernels::Wide<T>* stats) {
  using C = kernels::Wide<T>;
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  const bool aligned = are_aligned(x, weight, bias, y);
  for_each_row(block, shape.rows, [&](int64_t row) {
    const T* const from = x + row * cols;
    C mean = 0;
    if (shape.centered) {
      C sum = 0;
      for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
        const auto strip = load(width, from + c);
        for (int k = 0; k < width; ++k) sum += strip[k];
      });
      mean = block.sum(sum) / C(cols);
    }
    C squares = 0;
    for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
      const auto strip = load(width, from + c);
      for (int k = 0; k < width; ++k) {
        const C away = strip[k] - mean;
        squares += away * away;
      }
    });
    const C rstd = C(1) / std::sqrt(block.sum(squares) / C(cols) + epsilon);
    if (block.thread() == 0) {
      if (shape.centered) stats[row * per_row] = mean;
      stats[row * per_row + per_row - 1] = rstd;
    }
    write_normal_row(block, cols, aligned, from, mean, rstd, weight, bias, y + row * cols);
  });
}

template <typename Block, typename T>
SMP_HOST_DEVICE void norm_apply(const Block& block, const kernels::NormShape& shape, const T* x,
                                const kernels::Wide<T>* stats, const T* weight, const T* bias,
                                T* y) {
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  const bool aligned = are_aligned(x, weight, bias, y);
  for_each_row(block, shape.rows, [&](int64_t row) {
    const kernels::Wide<T>* const of_row = stats + row * per_row;
    write_normal_row(block, cols, aligned, x + row * cols,
                     shape.centered ? of_row[0] : kernels::Wide<T>(0), of_row[per_row - 1], weight,
                     bias, y + row * cols);
  });
}

// Computes dx only; dx may be dy. The weight's gradient is the column sums of norm_weight_term().
template <typename Block, typename T>
SMP_HOST_DEVICE void norm_input_gradient(Block& block, const kernels::NormShape& shape, const T* dy,
                                         const T* x, const kernels::Wide<T>* stats, const T* weight,
                                         const T* residual, T* dx) {
  using C = kernels::Wide<T>;
  const int64_t cols = shape.cols, per_row = shape.stats_per_row();
  const bool aligned = are_aligned(dy, x, weight, residual, dx);
  for_each_row(block, shape.rows, [&](int64_t row) {
    const int64_t at = row * cols;
    const C mean = shape.centered ? stats[row * per_row] : C(0);
    const C rstd = stats[row * per_row + per_row - 1];
    C sum = 0, product = 0;
    for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
      const auto d = load(width, dy + at + c), strip = load(width, x + at + c);
      const auto scale = load(width, weight + c);
      for (int k = 0; k < width; ++k) {
        const C scaled = d[k] * scale[k];
        sum += scaled;
        product += scaled * (strip[k] - mean) * rstd;
      }
    });
    sum = shape.centered ? block.sum(sum) / C(cols) : C(0);
    product = block.sum(product) / C(cols);
    for_each_strip_of_row<T>(block, cols, aligned, [&](auto width, int64_t c) {
      const auto d = load(width, dy + at + c), strip = load(width, x + at + c);
      const auto scale = load(width, weight + c), beside = load_or_zeros(width, residual, at + c);
      Strip<C, width> made;
      for (int k = 0; k < width; ++k) {
        const C normal = (strip[k] - mean) * rstd;
        made[k] = beside[k] + rstd * (d[k] * scale[k] - sum - normal * product);
      }
      store(made, dx + at + c);
    });
  });
}

template <typename T>
SMP_HOST_DEVICE kernels::Wide<T> norm_weight_term(const kernels::NormShape& shape, const T* dy,
                                                  const T* x, const kernels::Wide<T>* stats,
                                                  int64_t row, int64_t col) {
  using C = kernels::Wide<T>;
  const int64_t at = row * shape.cols + col, per_row = shape.stats_per_row();
  const C mean = shape.centered ? stats[row * per_row] : C(0);
  return C(dy[at]) * (C(x[at]) - mean) * stats[row * per_row + per_row - 1];
}

}  // namespace smp::cuda
