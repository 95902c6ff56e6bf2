#include "functions/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "functions/gemm.h"
#include "functions/vector_math.h"
#include "smp/plan/layers.h"

namespace smp {
namespace {

constexpr int64_t kQueryBlock = kAttentionQueryBlock;
constexpr int64_t kExactEvery = 32;  // positions between exact sines and cosines

int64_t block_rows(const AttentionShape& shape) { return std::min(kQueryBlock, shape.sequence); }

// Three heads' worth of packed buffers (q, k, v) and the rotary table.
int64_t head_elements(const AttentionShape& shape) {
  return (shape.rope_theta > 0 ? 4 : 3) * shape.sequence * shape.head_dim;
}

// Rotations [s, head_dim]: cosines of the head_dim / 2 frequencies, then their sines. Position by
// position each is turned by its frequency, and computed afresh often enough to stay exact.
template <typename T>
void fill_rotations(const AttentionShape& shape, T* table) {
  const int64_t half = shape.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(
        shape.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim));
    const double turn_cos = std::cos(frequency), turn_sin = std::sin(frequency);
    double c = 1, s = 0;
    for (int64_t position = 0; position < shape.sequence; ++position) {
      if (position % kExactEvery == 0) {
        c = std::cos(frequency * static_cast<double>(position));
        s = std::sin(frequency * static_cast<double>(position));
      }
      table[position * shape.head_dim + i] = static_cast<T>(c);
      table[position * shape.head_dim + half + i] = static_cast<T>(s);
      const double turned = c * turn_cos - s * turn_sin;
      s = s * turn_cos + c * turn_sin;
      c = turned;
    }
  }
}

// Rotates pairs (i, i + head_dim / 2), as transformers' rotate_half does; direction -1 turns back.
template <typename T>
SMP_INLINE void rotate_loop(int64_t rows, int64_t head_dim, const T* table, T direction,
                            const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  const int64_t half = head_dim / 2;
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride, table += head_dim) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const T c = table[i], s = direction * table[half + i];
      const T a = from[i], b = from[half + i];
      to[i] = a * c - b * s;
      to[half + i] = b * c + a * s;
    }
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

// Rows `first`.. of a query block's scores [rows, keys]: exponentials of what each query may see,
// zeros beyond.
template <typename T>
SMP_INLINE void softmax_loop(int64_t rows, int64_t keys, int64_t first, T* scores, T* inverse_sums,
                             T* log_sums) {
  for (int64_t r = 0; r < rows; ++r, scores += keys) {
    const int64_t seen = first + r + 1;
    T highest = std::numeric_limits<T>::lowest();
#pragma omp simd reduction(max : highest)
    for (int64_t k = 0; k < seen; ++k) highest = scores[k] > highest ? scores[k] : highest;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < seen; ++k) {
      const T e = vector_exp(scores[k] - highest);
      scores[k] = e;
      sum += e;
    }
    for (int64_t k = seen; k < keys; ++k) scores[k] = 0;
    inverse_sums[r] = T(1) / sum;
    log_sums[r] = highest + std::log(sum);
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

// scores become probabilities p; their gradients become p * (gradient - sum(output * its
// gradient)).
template <typename T>
SMP_INLINE void softmax_backward_loop(int64_t rows, int64_t keys, int64_t first, int64_t head_dim,
                                      int64_t stride, const T* output, const T* output_gradient,
                                      const T* log_sums, T* scores, T* gradients) {
  for (int64_t r = 0; r < rows; ++r, scores += keys, gradients += keys) {
    const int64_t seen = first + r + 1;
    T product = 0;
    const T* o = output + r * stride;
    const T* d = output_gradient + r * stride;
#pragma omp simd reduction(+ : product)
    for (int64_t c = 0; c < head_dim; ++c) product += o[c] * d[c];
    const T log_sum = log_sums[r];
#pragma omp simd
    for (int64_t k = 0; k < seen; ++k) {
      const T p = vector_exp(scores[k] - log_sum);
      scores[k] = p;
      gradients[k] = p * (gradients[k] - product);
    }
    for (int64_t k = seen; k < keys; ++k) scores[k] = gradients[k] = 0;
  }
}

#define SMP_DEFINE(T)                                                                             \
  SMP_VECTOR_CLONES void rotate(int64_t rows, int64_t head_dim, const T* table, T direction,      \
                                const T* from, int64_t from_stride, T* to, int64_t to_stride) {   \
    rotate_loop(rows, head_dim, table, direction, from, from_stride, to, to_stride);              \
  }                                                                                               \
  SMP_VECTOR_CLONES void copy_rows(int64_t rows, int64_t cols, const T* from, int64_t stride,     \
                                   const T* bias, T* to) {                                        \
    copy_loop(rows, cols, from, stride, bias, to);                                                \
  }                                                                                               \
  SMP_VECTOR_CLONES void softmax(int64_t rows, int64_t keys, int64_t first, T* scores,            \
                                 T* inverse_sums, T* log_sums) {                                  \
    softmax_loop(rows, keys, first, scores, inverse_sums, log_sums);                              \
  }                                                                                               \
  SMP_VECTOR_CLONES void scale_rows(int64_t rows, int64_t cols, int64_t stride, const T* factors, \
                                    T* x) {                                                       \
    scale_rows_loop(rows, cols, stride, factors, x);                                              \
  }                                                                                               \
  SMP_VECTOR_CLONES void softmax_backward(                                                        \
      int64_t rows, int64_t keys, int64_t first, int64_t head_dim, int64_t stride,                \
      const T* output, const T* output_gradient, const T* log_sums, T* scores, T* gradients) {    \
    softmax_backward_loop(rows, keys, first, head_dim, stride, output, output_gradient, log_sums, \
                          scores, gradients);                                                     \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
#undef SMP_DEFINE

// Where the parts of a call's scratch buffer lie, and how heads get there.
template <typename T>
struct Scratch {
  Scratch(const AttentionShape& call, T* buffer) : shape(call) {
    const int64_t head = shape.sequence * shape.head_dim;
    q = buffer;
    k = q + head;
    v = k + head;
    table = shape.rope_theta > 0 ? v + head : nullptr;
    scores = buffer + head_elements(shape);
    if (table != nullptr) fill_rotations(shape, table);
  }

  // Copies the head at column `col` of the packed rows of one sample, with its bias or rotated.
  void load(const T* rows, const T* bias, int64_t col, bool rotated, T* to) const {
    const int64_t stride = shape.packed_cols();
    if (rotated && table != nullptr) {
      rotate(shape.sequence, shape.head_dim, table, T(1), rows + col, stride, to, shape.head_dim);
    } else {
      copy_rows(shape.sequence, shape.head_dim, rows + col, stride, bias ? bias + col : nullptr,
                to);
    }
  }

  // Turns the gradient of a rotated head at column `col` back, in place.
  void rotate_back(T* rows, int64_t col) const {
    if (table == nullptr) return;
    const int64_t stride = shape.packed_cols();
    rotate(shape.sequence, shape.head_dim, table, T(-1), rows + col, stride, rows + col, stride);
  }

  const AttentionShape& shape;
  T *q, *k, *v, *table, *scores;
};

template <typename T>
void forward(const AttentionShape& shape, const T* packed, const T* bias, T* output, T* log_sums,
             T* buffer) {
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const T scale = T(1 / std::sqrt(static_cast<double>(d)));
  const Scratch<T> at(shape, buffer);
  T inverse_sums[kQueryBlock];
  for (int64_t b = 0; b < shape.batch; ++b) {
    const T* rows = packed + b * s * shape.packed_cols();
    for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      at.load(rows, bias, (shape.heads + kv) * d, true, at.k);
      at.load(rows, bias, (shape.heads + shape.kv_heads + kv) * d, false, at.v);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        at.load(rows, bias, head * d, true, at.q);
        for (int64_t first = 0; first < s; first += kQueryBlock) {
          const int64_t m = std::min(kQueryBlock, s - first);
          const int64_t keys = first + m;
          gemm(Transpose::kNo, Transpose::kYes, m, keys, d, scale, at.q + first * d, d, at.k, d,
               T(0), at.scores, keys);
          softmax(m, keys, first, at.scores, inverse_sums,
                  log_sums + (b * shape.heads + head) * s + first);
          T* out = output + (b * s + first) * shape.output_cols() + head * d;
          gemm(Transpose::kNo, Transpose::kNo, m, d, keys, T(1), at.scores, keys, at.v, d, T(0),
               out, shape.output_cols());
          scale_rows(m, d, shape.output_cols(), inverse_sums, out);
        }
      }
    }
  }
}

template <typename T>
void backward(const AttentionShape& shape, T* packed, const T* bias, const T* output,
              const T* output_gradient, const T* log_sums, T* buffer) {
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t stride = shape.packed_cols(), out_stride = shape.output_cols();
  const T scale = T(1 / std::sqrt(static_cast<double>(d)));
  const Scratch<T> at(shape, buffer);
  T* gradients = at.scores + block_rows(shape) * s;
  const int64_t last = (s - 1) / kQueryBlock * kQueryBlock;
  for (int64_t b = 0; b < shape.batch; ++b) {
    T* rows = packed + b * s * stride;
    for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      const int64_t k_col = (shape.heads + kv) * d, v_col = k_col + shape.kv_heads * d;
      at.load(rows, bias, k_col, true, at.k);
      at.load(rows, bias, v_col, false, at.v);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        at.load(rows, bias, head * d, true, at.q);
        // The last block sees every key: it writes the key and value gradients, the others add.
        for (int64_t first = last; first >= 0; first -= kQueryBlock) {
          const int64_t m = std::min(kQueryBlock, s - first);
          const int64_t keys = first + m;
          const T add = head == kv * group && first == last ? T(0) : T(1);
          const int64_t offset = (b * s + first) * out_stride + head * d;
          const T* q = at.q + first * d;
          gemm(Transpose::kNo, Transpose::kYes, m, keys, d, scale, q, d, at.k, d, T(0), at.scores,
               keys);
          gemm(Transpose::kNo, Transpose::kYes, m, keys, d, T(1), output_gradient + offset,
               out_stride, at.v, d, T(0), gradients, keys);
          softmax_backward(m, keys, first, d, out_stride, output + offset, output_gradient + offset,
                           log_sums + (b * shape.heads + head) * s + first, at.scores, gradients);
          gemm(Transpose::kYes, Transpose::kNo, keys, d, m, T(1), at.scores, keys,
               output_gradient + offset, out_stride, add, rows + v_col, stride);
          gemm(Transpose::kNo, Transpose::kNo, m, d, keys, scale, gradients, keys, at.k, d, T(0),
               rows + first * stride + head * d, stride);
          gemm(Transpose::kYes, Transpose::kNo, keys, d, m, scale, gradients, keys, q, d, add,
               rows + k_col, stride);
        }
        at.rotate_back(rows, head * d);
      }
      at.rotate_back(rows, k_col);
    }
  }
}

}  // namespace

int64_t AttentionShape::forward_scratch() const {
  return head_elements(*this) + block_rows(*this) * sequence;
}
int64_t AttentionShape::backward_scratch() const {
  return head_elements(*this) + 2 * block_rows(*this) * sequence;
}

#define SMP_DEFINE(T)                                                                             \
  void attention_forward(const AttentionShape& shape, const T* packed, const T* bias, T* output,  \
                         T* log_sums, T* scratch) {                                               \
    forward(shape, packed, bias, output, log_sums, scratch);                                      \
  }                                                                                               \
  void attention_backward(const AttentionShape& shape, T* packed, const T* bias, const T* output, \
                          const T* output_gradient, const T* log_sums, T* scratch) {              \
    backward(shape, packed, bias, output, output_gradient, log_sums, scratch);                    \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp
