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

template <typename T>
SMP_INLINE void forward(const NormShape& shape, T epsilon, const T* x, const T* weight,
                        const T* bias, T* y, T* stats) {
  const int64_t cols = shape.cols;
  for (int64_t r = 0; r < shape.rows; ++r, x += cols, y += cols, stats += shape.stats_per_row()) {
    T mean = 0;
    if (shape.centered) {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < cols; ++c) sum += x[c];
      mean = sum / T(cols);
    }
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const T rstd = T(1) / std::sqrt(squares / T(cols) + epsilon);
    if (shape.centered) stats[0] = mean;
    stats[shape.stats_per_row() - 1] = rstd;
    norm_row(cols, x, mean, rstd, weight, bias, y);
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
