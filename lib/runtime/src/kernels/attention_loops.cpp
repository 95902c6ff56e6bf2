#include "kernels/attention_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dropout_factors.h"
#include "kernels/vector_math.h"

namespace smp::kernels {
namespace {

template <typename T>
SMP_INLINE void rotate_loop(int64_t rows, int64_t head_dim, int64_t dim, const T* table,
                            T direction, const T* from, int64_t from_stride, T* to,
                            int64_t to_stride) {
  const int64_t half = dim / 2, rest = from == to ? dim : head_dim;
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride, table += dim) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const T c = table[i], s = direction * table[half + i];
      const T a = from[i], b = from[half + i];
      to[i] = a * c - b * s;
      to[half + i] = b * c + a * s;
    }
    for (int64_t i = dim; i < rest; ++i) to[i] = from[i];
  }
}

template <typename T>
SMP_INLINE void copy_loop(int64_t rows, int64_t cols, const T* from, int64_t stride, const T* bias,
                          T* to) {
  for (int64_t r = 0; r < rows; ++r, from += stride, to += cols) {
    if (bias != nullptr) {
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) to[c] = from[c] + bias[c];
    } else {
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) to[c] = from[c];
    }
  }
}

template <typename T>
SMP_INLINE void transpose_loop(int64_t s, int64_t head_dim, const T* from, int64_t row, T* to) {
  constexpr int64_t kTogether = 16;  // elements written at once
  int64_t begin = 0;
  for (; begin + kTogether <= s; begin += kTogether) {
    for (int64_t c = 0; c < head_dim; ++c) {
      for (int64_t r = begin; r < begin + kTogether; ++r) to[c * row + r] = from[r * head_dim + c];
    }
  }
  for (int64_t c = 0; c < head_dim; ++c) {
    for (int64_t r = begin; r < s; ++r) to[c * row + r] = from[r * head_dim + c];
    for (int64_t r = s; r < row; ++r) to[c * row + r] = 0;
  }
}

template <typename T>
SMP_INLINE void softmax_loop(int64_t rows, const VisibleKeys& keys, int64_t row, const T* sink,
                             T* scores, T* inverse_sums, T* log_sums) {
  const int64_t cols = keys.worked_end();
  for (int64_t r = 0; r < rows; ++r, scores += row) {
    const int64_t begin = keys.begin[r], seen = keys.end[r];
    for (int64_t k = keys.first; k < begin; ++k) scores[k] = 0;
    for (int64_t k = seen; k < cols; ++k) scores[k] = 0;
    if (begin == seen) continue;
    T highest = sink != nullptr ? *sink : std::numeric_limits<T>::lowest();
#pragma omp simd reduction(max : highest)
    for (int64_t k = begin; k < seen; ++k) highest = scores[k] > highest ? scores[k] : highest;
    T sum = sink != nullptr ? vector_exp(*sink - highest) : T(0);
#pragma omp simd reduction(+ : sum)
    for (int64_t k = begin; k < seen; ++k) {
      const T e = vector_exp(scores[k] - highest);
      scores[k] = e;
      sum += e;
    }
    inverse_sums[r] = T(1) / sum;
    log_sums[r] = highest + std::log(sum);
  }
}

// Columns from one on whose factors dropout_factors() draws at once, from position `first` on.
struct DropoutGroup {
  int64_t first = 0;
  int64_t into = 0;   // the first column among them
  int64_t count = 0;  // columns
};
// Keys count by their positions in the sample. Those of a slice follow each other.
SMP_INLINE DropoutGroup dropout_group(const VisibleKeys& keys, int64_t column, int64_t end) {
  const int64_t position = keys.keys.position(column), into = position % kDropoutColumns;
  const int64_t count = std::min(kDropoutColumns - into, keys.keys.neighbours(column, end));
  return {position - into, into, count};
}
SMP_INLINE DropoutRow dropout_row(const VisibleKeys& keys, DropoutRow dropout, int64_t row) {
  dropout.row += static_cast<uint32_t>(keys.queries[row]);
  return dropout;
}

template <typename T>
SMP_INLINE void drop_strip_loop(int64_t rows, const VisibleKeys& keys, int64_t row,
                                const DropoutRow& dropout, T* scores) {
  const T factor = static_cast<T>(dropout.factor());
  T factors[kDropoutColumns];
  for (int64_t r = 0; r < rows; ++r, scores += row) {
    const DropoutRow own = dropout_row(keys, dropout, r);
    const int64_t seen = keys.end[r];
    for (int64_t k = keys.begin[r]; k < seen;) {
      const DropoutGroup group = dropout_group(keys, k, seen);
      dropout_factors(own, group.first, factor, factors);
      T* x = scores + k;
      const T* f = factors + group.into;
#pragma omp simd
      for (int64_t i = 0; i < group.count; ++i) x[i] *= f[i];
      k += group.count;
    }
  }
}

template <typename T>
SMP_INLINE void scale_rows_loop(int64_t rows, int64_t cols, int64_t stride, const T* factors,
                                T* x) {
  for (int64_t r = 0; r < rows; ++r, x += stride) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) x[c] *= factors[r];
  }
}

template <typename T>
SMP_INLINE void merge_strip_loop(int64_t rows, const VisibleKeys& keys, int64_t cols,
                                 const T* values, const T* inverse_sums, const T* further_log_sums,
                                 int64_t stride, T* output, T* log_sums) {
  for (int64_t r = 0; r < rows; ++r, values += cols, output += stride) {
    if (keys.begin[r] == keys.end[r]) continue;
    // The shares of both in the sum of exponentials, by way of the smaller one over the larger.
    const T more = further_log_sums[r] - log_sums[r];
    const T smaller = std::exp(-std::abs(more));
    const T large_share = T(1) / (T(1) + smaller), small_share = smaller * large_share;
    const T share = more > 0 ? large_share : small_share;
    const T kept = more > 0 ? small_share : large_share;
    const T factor = share * inverse_sums[r];
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) output[c] = kept * output[c] + factor * values[c];
    log_sums[r] = std::max(further_log_sums[r], log_sums[r]) + std::log1p(smaller);
  }
}

template <typename T>
SMP_INLINE void softmax_backward_loop(int64_t rows, const VisibleKeys& keys, int64_t row,
                                      int64_t head_dim, const T* output, int64_t output_stride,
                                      const T* output_gradient, const T* log_sums,
                                      const DropoutRow& dropout, T* scores, T* gradients) {
  const int64_t cols = keys.worked_end();
  const T factor = static_cast<T>(dropout.factor());
  T factors[kDropoutColumns];
  for (int64_t r = 0; r < rows; ++r, scores += row, gradients += row) {
    const int64_t begin = keys.begin[r], seen = keys.end[r];
    T product = 0;
    const T* o = output + r * output_stride;
    const T* d = output_gradient + r * head_dim;
#pragma omp simd reduction(+ : product)
    for (int64_t c = 0; c < head_dim; ++c) product += o[c] * d[c];
    const T log_sum = log_sums[r];
    if (dropout.threshold == 0) {
#pragma omp simd
      for (int64_t k = begin; k < seen; ++k) {
        const T p = vector_exp(scores[k] - log_sum);
        scores[k] = p;
        gradients[k] = p * (gradients[k] - product);
      }
    } else {
      const DropoutRow own = dropout_row(keys, dropout, r);
      for (int64_t k = begin; k < seen;) {
        const DropoutGroup group = dropout_group(keys, k, seen);
        dropout_factors(own, group.first, factor, factors);
        T *x = scores + k, *g = gradients + k;
        const T* f = factors + group.into;
#pragma omp simd
        for (int64_t i = 0; i < group.count; ++i) {
          const T p = vector_exp(x[i] - log_sum);
          x[i] = p * f[i];
          g[i] = p * (g[i] * f[i] - product);
        }
        k += group.count;
      }
    }
    for (int64_t k = keys.first; k < begin; ++k) scores[k] = gradients[k] = 0;
    for (int64_t k = seen; k < cols; ++k) scores[k] = gradients[k] = 0;
  }
}

template <typename T>
SMP_INLINE T sink_gradient_loop(int64_t rows, int64_t head_dim, T sink, const T* output,
                                int64_t output_stride, const T* output_gradient,
                                const T* log_sums) {
  T sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const T* o = output + r * output_stride;
    const T* d = output_gradient + r * head_dim;
    T product = 0;
#pragma omp simd reduction(+ : product)
    for (int64_t c = 0; c < head_dim; ++c) product += o[c] * d[c];
    sum -= vector_exp(sink - log_sums[r]) * product;
  }
  return sum;
}

template <typename T>
SMP_INLINE void add_diagonal_loop(int64_t rows, int64_t cols, const T* diagonal, int64_t row,
                                  T* scores) {
  for (int64_t r = 0; r < rows; ++r, scores += row, --diagonal) {
#pragma omp simd
    for (int64_t k = 0; k < cols; ++k) scores[k] += diagonal[k];
  }
}

template <typename T>
SMP_INLINE void add_to_diagonal_loop(int64_t rows, int64_t cols, const T* gradients, int64_t row,
                                     T* diagonal) {
  for (int64_t r = 0; r < rows; ++r, gradients += row, --diagonal) {
#pragma omp simd
    for (int64_t k = 0; k < cols; ++k) diagonal[k] += gradients[k];
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                              \
  SMP_VECTOR_CLONES void rotate(int64_t rows, int64_t head_dim, int64_t dim, const T* table,       \
                                T direction, const T* from, int64_t from_stride, T* to,            \
                                int64_t to_stride) {                                               \
    rotate_loop(rows, head_dim, dim, table, direction, from, from_stride, to, to_stride);          \
  }                                                                                                \
  SMP_VECTOR_CLONES void copy_rows(int64_t rows, int64_t cols, const T* from, int64_t stride,      \
                                   const T* bias, T* to) {                                         \
    copy_loop(rows, cols, from, stride, bias, to);                                                 \
  }                                                                                                \
  SMP_VECTOR_CLONES void transpose(int64_t s, int64_t head_dim, const T* from, int64_t row,        \
                                   T* to) {                                                        \
    transpose_loop(s, head_dim, from, row, to);                                                    \
  }                                                                                                \
  SMP_VECTOR_CLONES void softmax(int64_t rows, const VisibleKeys& seen, int64_t row,               \
                                 const T* sink, T* scores, T* inverse_sums, T* log_sums) {         \
    softmax_loop(rows, seen, row, sink, scores, inverse_sums, log_sums);                           \
  }                                                                                                \
  SMP_VECTOR_CLONES void drop_strip(int64_t rows, const VisibleKeys& seen, int64_t row,            \
                                    DropoutRow dropout, T* scores) {                               \
    drop_strip_loop(rows, seen, row, dropout, scores);                                             \
  }                                                                                                \
  SMP_VECTOR_CLONES void scale_rows(int64_t rows, int64_t cols, int64_t stride, const T* factors,  \
                                    T* x) {                                                        \
    scale_rows_loop(rows, cols, stride, factors, x);                                               \
  }                                                                                                \
  SMP_VECTOR_CLONES void merge_strip(                                                              \
      int64_t rows, const VisibleKeys& seen, int64_t cols, const T* values, const T* inverse_sums, \
      const T* further_log_sums, int64_t stride, T* output, T* log_sums) {                         \
    merge_strip_loop(rows, seen, cols, values, inverse_sums, further_log_sums, stride, output,     \
                     log_sums);                                                                    \
  }                                                                                                \
  SMP_VECTOR_CLONES void softmax_backward(                                                         \
      int64_t rows, const VisibleKeys& seen, int64_t row, int64_t head_dim, const T* output,       \
      int64_t output_stride, const T* output_gradient, const T* log_sums, DropoutRow dropout,      \
      T* scores, T* gradients) {                                                                   \
    softmax_backward_loop(rows, seen, row, head_dim, output, output_stride, output_gradient,       \
                          log_sums, dropout, scores, gradients);                                   \
  }                                                                                                \
  SMP_VECTOR_CLONES T sink_gradient(int64_t rows, int64_t head_dim, T sink, const T* output,       \
                                    int64_t output_stride, const T* output_gradient,               \
                                    const T* log_sums) {                                           \
    return sink_gradient_loop(rows, head_dim, sink, output, output_stride, output_gradient,        \
                              log_sums);                                                           \
  }                                                                                                \
  SMP_VECTOR_CLONES void add_diagonal(int64_t rows, int64_t cols, const T* diagonal, int64_t row,  \
                                      T* scores) {                                                 \
    add_diagonal_loop(rows, cols, diagonal, row, scores);                                          \
  }                                                                                                \
  SMP_VECTOR_CLONES void add_to_diagonal(int64_t rows, int64_t cols, const T* gradients,           \
                                         int64_t row, T* diagonal) {                               \
    add_to_diagonal_loop(rows, cols, gradients, row, diagonal);                                    \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
