#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/vector_math.h"

namespace smp::kernels {
namespace {

// Rows whose contributions to a column sum are added up before they join the total: keeps the
// rounding of long sums small.
constexpr int64_t kBlock = 64;

template <typename T>
SMP_INLINE void norm_row(int64_t cols, const T* x, T mean, T rstd, const T* weight, const T* bias,
                         T* y) {
  if (bias != nullptr) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
  } else {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = (x[c] - mean) * rstd * weight[c];
  }
}

// `sum`: of the row, if the norm is centered.
template <typename T>
SMP_INLINE void forward_row(const NormShape& shape, T epsilon, const T* x, T sum, const T* weight,
                            const T* bias, T* y, T* stats) {
  const int64_t cols = shape.cols;
  const T mean = shape.centered ? sum / T(cols) : T(0);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const T rstd = T(1) / std::sqrt(squares / T(cols) + epsilon);
  if (shape.centered) stats[0] = mean;
  stats[shape.stats_per_row() - 1] = rstd;
  norm_row(cols, x, mean, rstd, weight, bias, y);
}

template <typename T>
SMP_INLINE void forward(const NormShape& shape, T epsilon, const T* x, const T* weight,
                        const T* bias, T* y, T* stats) {
  const int64_t cols = shape.cols;
  for (int64_t r = 0; r < shape.rows; ++r, x += cols, y += cols, stats += shape.stats_per_row()) {
    T sum = 0;
    if (shape.centered) {
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < cols; ++c) sum += x[c];
    }
    forward_row(shape, epsilon, x, sum, weight, bias, y, stats);
  }
}

// y = x + (y + bias), and the norm of each row while it is in cache.
template <typename T>
SMP_INLINE void add_and_forward(const NormShape& shape, T epsilon, const T* x, const T* bias, T* y,
                                const T* weight, const T* norm_bias, T* normed, T* stats) {
  const int64_t cols = shape.cols;
  for (int64_t r = 0; r < shape.rows; ++r) {
    T sum = 0;
    if (bias != nullptr) {
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < cols; ++c) sum += y[c] = x[c] + (y[c] + bias[c]);
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < cols; ++c) sum += y[c] = x[c] + y[c];
    }
    forward_row(shape, epsilon, y, sum, weight, norm_bias, normed, stats);
    x += cols, y += cols, normed += cols, stats += shape.stats_per_row();
  }
}

// The same with dropout of y + bias, which is drawn a few rows at a time.
template <typename T>
void drop_and_forward(const NormShape& shape, const Dropout& dropout, T epsilon, const T* x,
                      const T* bias, T* y, const T* weight, const T* norm_bias, T* normed,
                      T* stats) {
  constexpr int64_t kRowsAtOnce = 8;
  const int64_t cols = shape.cols;
  NormShape block = shape;
  for (int64_t first = 0; first < shape.rows; first += kRowsAtOnce) {
    block.rows = std::min(kRowsAtOnce, shape.rows - first);
    T* const sums = y + first * cols;
    add_residual_dropped(dropout.from_row(first), block.rows, cols, x + first * cols, bias, sums);
    norm_forward(block, epsilon, sums, weight, norm_bias, normed + first * cols,
                 stats + first * shape.stats_per_row());
  }
}

template <typename T>
SMP_INLINE void apply(const NormShape& shape, const T* x, const T* stats, const T* weight,
                      const T* bias, T* y) {
  const int64_t cols = shape.cols;
  for (int64_t r = 0; r < shape.rows; ++r, x += cols, y += cols, stats += shape.stats_per_row()) {
    const T mean = shape.centered ? stats[0] : T(0);
    norm_row(cols, x, mean, stats[shape.stats_per_row() - 1], weight, bias, y);
  }
}

// With w = dy * weight and n columns: dx = rstd * (w - mean(w) - xhat * mean(w * xhat)), where the
// first mean falls away without centering.
template <typename T>
SMP_INLINE void backward(const NormShape& shape, const T* dy, const T* x, const T* stats,
                         const T* weight, const T* residual, T* dx, T* dweight, T* dbias) {
  const int64_t cols = shape.cols;
  std::vector<T> block_sums(static_cast<size_t>(2 * cols));
  T* weight_sums = block_sums.data();
  T* bias_sums = weight_sums + cols;
  for (int64_t begin = 0; begin < shape.rows; begin += kBlock) {
    std::fill(block_sums.begin(), block_sums.end(), T(0));
    const int64_t end = std::min(shape.rows, begin + kBlock);
    for (int64_t r = begin; r < end; ++r) {
      const T* x_row = x + r * cols;
      const T* dy_row = dy + r * cols;
      T* dx_row = dx + r * cols;
      const T* stats_row = stats + r * shape.stats_per_row();
      const T mean = shape.centered ? stats_row[0] : T(0);
      const T rstd = stats_row[shape.stats_per_row() - 1];
      T sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
      for (int64_t c = 0; c < cols; ++c) {
        const T normal = (x_row[c] - mean) * rstd;
        const T scaled = dy_row[c] * weight[c];
        sum += scaled;
        product += scaled * normal;
        weight_sums[c] += dy_row[c] * normal;
        bias_sums[c] += dy_row[c];
      }
      sum = shape.centered ? sum / T(cols) : T(0);
      product /= T(cols);
      if (residual != nullptr) {
        const T* residual_row = residual + r * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
          const T normal = (x_row[c] - mean) * rstd;
          dx_row[c] = residual_row[c] + rstd * (dy_row[c] * weight[c] - sum - normal * product);
        }
      } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
          const T normal = (x_row[c] - mean) * rstd;
          dx_row[c] = rstd * (dy_row[c] * weight[c] - sum - normal * product);
        }
      }
    }
    for (int64_t c = 0; c < cols; ++c) dweight[c] += weight_sums[c];
    if (dbias != nullptr) {
      for (int64_t c = 0; c < cols; ++c) dbias[c] += bias_sums[c];
    }
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                             \
  SMP_VECTOR_CLONES void norm_forward(const NormShape& shape, T epsilon, const T* x,              \
                                      const T* weight, const T* bias, T* y, T* stats) {           \
    forward(shape, epsilon, x, weight, bias, y, stats);                                           \
  }                                                                                               \
  SMP_VECTOR_CLONES void sum_and_norm(const NormShape& shape, const Dropout& dropout, T epsilon,  \
                                      const T* x, const T* bias, T* y, const T* weight,           \
                                      const T* norm_bias, T* normed, T* stats) {                  \
    if (dropout.is_on()) {                                                                        \
      drop_and_forward(shape, dropout, epsilon, x, bias, y, weight, norm_bias, normed, stats);    \
    } else {                                                                                      \
      add_and_forward(shape, epsilon, x, bias, y, weight, norm_bias, normed, stats);              \
    }                                                                                             \
  }                                                                                               \
  SMP_VECTOR_CLONES void norm_apply(const NormShape& shape, const T* x, const T* stats,           \
                                    const T* weight, const T* bias, T* y) {                       \
    apply(shape, x, stats, weight, bias, y);                                                      \
  }                                                                                               \
  SMP_VECTOR_CLONES void norm_backward(const NormShape& shape, const T* dy, const T* x,           \
                                       const T* stats, const T* weight, const T* residual, T* dx, \
                                       T* dweight, T* dbias) {                                    \
    backward(shape, dy, x, stats, weight, residual, dx, dweight, dbias);                          \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
