#pragma once

#include <cmath>

#include "cuda/block.h"
#include "smp/plan/program/attributes.h"

// Norms of queries and of keys over all heads (kernels/qk_norms.h and .cpp). One block per row and
// norm: 2 * rows.
namespace smp::cuda {

template <typename C>
struct QkWeightPointers {
  const C *q = nullptr, *k = nullptr;
};

// The columns of one of the two norms: 0 of queries, 1 of keys.
struct QkColumns {
  int64_t first, count;
};
SMP_HOST_DEVICE QkColumns qk_columns(const program::QkNormAttributes& norm, int64_t which) {
  return which == 0 ? QkColumns{0, norm.q_cols} : QkColumns{norm.q_cols, norm.k_cols};
}

template <typename C>
SMP_HOST_DEVICE C qk_inverse_rms(const program::QkNormAttributes& norm, const QkColumns& columns,
                                 C squares) {
  return C(1) / std::sqrt(squares / C(columns.count * norm.ranks) + C(norm.epsilon));
}

template <typename Block, typename T>
SMP_HOST_DEVICE void qk_squares(Block& block, const program::QkNormAttributes& norm, int64_t rows,
                                int64_t cols, const T* x, kernels::Wide<T>* squares) {
  using C = kernels::Wide<T>;
  for_each_row(block, 2 * rows, [&](int64_t i) {
    const QkColumns columns = qk_columns(norm, i % 2);
    const T* const row = x + i / 2 * cols + columns.first;
    C sum = 0;
    for_each_column(block, columns.count, [&](int64_t c) { sum += C(row[c]) * C(row[c]); });
    sum = block.sum(sum);
    if (block.thread() == 0) squares[i] = sum;
  });
}

// One thread per element; values are copied.
template <typename Block, typename T>
SMP_HOST_DEVICE void qk_norm(const Block& block, const program::QkNormAttributes& norm,
                             int64_t rows, int64_t cols, const T* x,
                             const kernels::Wide<T>* squares, const QkWeightPointers<T>& weights,
                             T* y) {
  using C = kernels::Wide<T>;
  for_each(block, rows * cols, [&](int64_t i) {
    const int64_t row = i / cols, col = i % cols;
    if (col >= norm.q_cols + norm.k_cols) {
      y[i] = x[i];
      return;
    }
    const int64_t which = col < norm.q_cols ? 0 : 1;
    const QkColumns columns = qk_columns(norm, which);
    const C weight = C((which == 0 ? weights.q : weights.k)[col - columns.first]);
    y[i] = T(C(x[i]) * qk_inverse_rms(norm, columns, squares[2 * row + which]) * weight);
  });
}

// Of the gradient of a weight, in column `col` of a norm: its column sums are the gradient.
template <typename T>
SMP_HOST_DEVICE kernels::Wide<T> qk_weight_term(const program::QkNormAttributes& norm,
                                                int64_t which, int64_t cols, const T* dy,
                                                const T* x, const kernels::Wide<T>* squares,
                                                int64_t row, int64_t col) {
  using C = kernels::Wide<T>;
  const QkColumns columns = qk_columns(norm, which);
  const int64_t at = row * cols + columns.first + col;
  return C(dy[at]) * C(x[at]) * qk_inverse_rms(norm, columns, squares[2 * row + which]);
}

// The sums of dy * weight * x / rms.
template <typename Block, typename T>
SMP_HOST_DEVICE void qk_norm_sums(Block& block, const program::QkNormAttributes& norm, int64_t rows,
                                  int64_t cols, const T* dy, const T* x,
                                  const kernels::Wide<T>* squares,
                                  const QkWeightPointers<T>& weights, kernels::Wide<T>* sums) {
  using C = kernels::Wide<T>;
  for_each_row(block, 2 * rows, [&](int64_t i) {
    const QkColumns columns = qk_columns(norm, i % 2);
    const T* const weight = i % 2 == 0 ? weights.q : weights.k;
    C sum = 0;
    for_each_column(block, columns.count, [&](int64_t c) {
      sum += qk_weight_term(norm, i % 2, cols, dy, x, squares, i / 2, c) * C(weight[c]);
    });
    sum = block.sum(sum);
    if (block.thread() == 0) sums[i] = sum;
  });
}

// One thread per element; dy becomes the gradient of x.
template <typename Block, typename T>
SMP_HOST_DEVICE void qk_norm_backward(const Block& block, const program::QkNormAttributes& norm,
                                      int64_t rows, int64_t cols, T* dy, const T* x,
                                      const kernels::Wide<T>* squares, const kernels::Wide<T>* sums,
                                      const QkWeightPointers<T>& weights) {
  using C = kernels::Wide<T>;
  const int64_t normed = norm.q_cols + norm.k_cols;
  for_each(block, rows * normed, [&](int64_t i) {
    const int64_t row = i / normed, col = i % normed, at = row * cols + col;
    const int64_t which = col < norm.q_cols ? 0 : 1;
    const QkColumns columns = qk_columns(norm, which);
    const C weight = C((which == 0 ? weights.q : weights.k)[col - columns.first]);
    const C rstd = qk_inverse_rms(norm, columns, squares[2 * row + which]);
    const C mean = sums[2 * row + which] / C(columns.count * norm.ranks);
    dy[at] = T(rstd * (C(dy[at]) * weight - C(x[at]) * rstd * mean));
  });
}

}  // namespace smp::cuda
