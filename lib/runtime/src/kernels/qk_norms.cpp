#include "kernels/qk_norms.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/vector_math.h"

// With n columns of all ranks: 1/rms = 1 / sqrt(squares / n + epsilon), and of the gradient w = dy
// * weight: dx = (w - x/rms * sum(w * x/rms) / n) / rms. Where ranks hold copies of a KV head, each
// has a part of its dy, and the copies count in both sums and in n: then the parts of dx add up as
// well.
namespace smp::kernels {
namespace {

// Rows whose contributions to a weight's gradient are added up before they join the total.
constexpr int64_t kBlock = 64;

// The columns of one of the two norms.
struct Columns {
  int64_t first = 0, count = 0;
  int64_t place = 0;  // of its sums
};

Columns queries_of(const program::QkNormAttributes& norm) { return {0, norm.q_cols, 0}; }
Columns keys_of(const program::QkNormAttributes& norm) { return {norm.q_cols, norm.k_cols, 1}; }

template <typename C>
const C* weight_of(const QkWeights<C>& weights, const Columns& columns) {
  return columns.place == 0 ? weights.q : weights.k;
}

template <typename C>
C of_all_ranks(const program::QkNormAttributes& norm, const Columns& columns) {
  return static_cast<C>(columns.count * norm.ranks);
}

template <typename C>
C inverse_rms(const program::QkNormAttributes& norm, const Columns& columns, C squares) {
  return C(1) / std::sqrt(squares / of_all_ranks<C>(norm, columns) + static_cast<C>(norm.epsilon));
}

template <typename T>
SMP_INLINE void squares_of(const Columns& columns, int64_t rows, int64_t cols, const T* x,
                           Wide<T>* squares) {
  using C = Wide<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * cols + columns.first;
    C sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < columns.count; ++c) {
      sum += static_cast<C>(row[c]) * static_cast<C>(row[c]);
    }
    squares[2 * r + columns.place] = sum;
  }
}

template <typename T>
SMP_INLINE void normed(const program::QkNormAttributes& norm, const Columns& columns, int64_t rows,
                       int64_t cols, const T* x, const Wide<T>* squares,
                       const QkWeights<Wide<T>>& weights, T* y) {
  using C = Wide<T>;
  const C* weight = weight_of(weights, columns);
  for (int64_t r = 0; r < rows; ++r) {
    const C rstd = inverse_rms(norm, columns, squares[2 * r + columns.place]);
    const T* from = x + r * cols + columns.first;
    T* to = y + r * cols + columns.first;
#pragma omp simd
    for (int64_t c = 0; c < columns.count; ++c) {
      to[c] = static_cast<T>(static_cast<C>(from[c]) * rstd * weight[c]);
    }
  }
}

template <typename T>
SMP_INLINE void sums_of(const program::QkNormAttributes& norm, const Columns& columns, int64_t rows,
                        int64_t cols, const T* dy, const T* x, const Wide<T>* squares,
                        const QkWeights<Wide<T>>& weights, Wide<T>* sums) {
  using C = Wide<T>;
  const C* weight = weight_of(weights, columns);
  C* total = columns.place == 0 ? weights.q_gradient : weights.k_gradient;
  std::vector<C> block(static_cast<size_t>(columns.count));
  C* gradient = block.data();
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    std::fill(block.begin(), block.end(), C(0));
    for (int64_t r = begin; r < std::min(rows, begin + kBlock); ++r) {
      const T* x_row = x + r * cols + columns.first;
      const T* dy_row = dy + r * cols + columns.first;
      const C rstd = inverse_rms(norm, columns, squares[2 * r + columns.place]);
      C sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < columns.count; ++c) {
        const C product = static_cast<C>(dy_row[c]) * static_cast<C>(x_row[c]) * rstd;
        gradient[c] += product;
        sum += product * weight[c];
      }
      sums[2 * r + columns.place] = sum;
    }
    for (int64_t c = 0; c < columns.count; ++c) total[c] += gradient[c];
  }
}

template <typename T>
SMP_INLINE void backward(const program::QkNormAttributes& norm, const Columns& columns,
                         int64_t rows, int64_t cols, T* dy, const T* x, const Wide<T>* squares,
                         const Wide<T>* sums, const QkWeights<Wide<T>>& weights) {
  using C = Wide<T>;
  const C* weight = weight_of(weights, columns);
  for (int64_t r = 0; r < rows; ++r) {
    const C rstd = inverse_rms(norm, columns, squares[2 * r + columns.place]);
    const C mean = sums[2 * r + columns.place] / of_all_ranks<C>(norm, columns);
    const T* from = x + r * cols + columns.first;
    T* to = dy + r * cols + columns.first;
#pragma omp simd
    for (int64_t c = 0; c < columns.count; ++c) {
      const C normal = static_cast<C>(from[c]) * rstd;
      to[c] = static_cast<T>(rstd * (static_cast<C>(to[c]) * weight[c] - normal * mean));
    }
  }
}

template <typename T>
void copy_values(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* x,
                 T* y) {
  const int64_t first = norm.q_cols + norm.k_cols;
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    std::copy_n(x + first, cols - first, y + first);
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                             \
  SMP_VECTOR_CLONES void qk_squares(const program::QkNormAttributes& norm, int64_t rows,          \
                                    int64_t cols, const T* x, Wide<T>* squares) {                 \
    squares_of(queries_of(norm), rows, cols, x, squares);                                         \
    squares_of(keys_of(norm), rows, cols, x, squares);                                            \
  }                                                                                               \
  SMP_VECTOR_CLONES void qk_norm(const program::QkNormAttributes& norm, int64_t rows,             \
                                 int64_t cols, const T* x, const Wide<T>* squares,                \
                                 const QkWeights<Wide<T>>& weights, T* y) {                       \
    normed(norm, queries_of(norm), rows, cols, x, squares, weights, y);                           \
    normed(norm, keys_of(norm), rows, cols, x, squares, weights, y);                              \
    copy_values(norm, rows, cols, x, y);                                                          \
  }                                                                                               \
  SMP_VECTOR_CLONES void qk_norm_sums(                                                            \
      const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* dy, const T* x, \
      const Wide<T>* squares, const QkWeights<Wide<T>>& weights, Wide<T>* sums) {                 \
    sums_of(norm, queries_of(norm), rows, cols, dy, x, squares, weights, sums);                   \
    sums_of(norm, keys_of(norm), rows, cols, dy, x, squares, weights, sums);                      \
  }                                                                                               \
  SMP_VECTOR_CLONES void qk_norm_backward(                                                        \
      const program::QkNormAttributes& norm, int64_t rows, int64_t cols, T* dy, const T* x,       \
      const Wide<T>* squares, const Wide<T>* sums, const QkWeights<Wide<T>>& weights) {           \
    backward(norm, queries_of(norm), rows, cols, dy, x, squares, sums, weights);                  \
    backward(norm, keys_of(norm), rows, cols, dy, x, squares, sums, weights);                     \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp::kernels
