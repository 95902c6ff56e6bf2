#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/attention_loops.h"
#include "kernels/attention_shape.h"
#include "kernels/kernels.h"

// Attention's way from the rows of the projections to a head in a contiguous buffer, and back.
namespace smp::kernels {

inline constexpr int64_t kExactEvery = 32;  // positions between exact sines and cosines

// Rotations [s, dim]: cosines of the dim / 2 frequencies, then their sines. Position by position
// each is turned by its frequency, and computed afresh often enough to stay exact.
template <typename T>
void fill_rotations(const AttentionShape& shape, T* table) {
  const int64_t dim = shape.rotary.dim, half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = rotary_frequency(shape.rotary, i);
    const double turn_cos = std::cos(frequency), turn_sin = std::sin(frequency);
    double c = 1, s = 0;
    for (int64_t position = 0; position < shape.longer(); ++position) {
      if (position % kExactEvery == 0) {
        c = std::cos(frequency * static_cast<double>(position));
        s = std::sin(frequency * static_cast<double>(position));
      }
      table[position * dim + i] = static_cast<T>(shape.rotary.attention_factor * c);
      table[position * dim + half + i] = static_cast<T>(shape.rotary.attention_factor * s);
      const double turned = c * turn_cos - s * turn_sin;
      s = s * turn_cos + c * turn_sin;
      c = turned;
    }
  }
}

inline NormShape norm_shape_of(const AttentionShape& shape, int64_t rows) {
  return {.rows = rows, .cols = shape.head_dim, .centered = shape.centered_norms};
}

// `count` rows of a head, `stride` apart in the tensors, as a contiguous [count, d] buffer.
template <typename T>
void load_rows(int64_t d, int64_t count, const T* from, int64_t stride, const Wide<T>* bias,
               Wide<T>* to) {
  if constexpr (kIsNarrow<T>) {
    for (int64_t r = 0; r < count; ++r) widen(d, from + r * stride, to + r * d);
    if (bias != nullptr) copy_rows(count, d, to, d, bias, to);
  } else {
    copy_rows(count, d, from, stride, bias, to);
  }
}

template <typename T>
void store_rows(int64_t rows, int64_t cols, const Wide<T>* from, T* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, from += cols, to += stride) {
    if constexpr (kIsNarrow<T>) {
      narrow(cols, from, to);
    } else {
      std::copy_n(from, cols, to);
    }
  }
}

// How a head is made of its rows: null norms and rotations where it has none.
template <typename C>
struct HeadSteps {
  int64_t dim = 0;          // elements of a row
  int64_t count = 0;        // of rows
  int64_t stride = 0;       // between them
  const C* bias = nullptr;  // [dim]
  const HeadNorm<C>* norm = nullptr;
  const C* rotations = nullptr;
  C* stats = nullptr;                  // of the norm
  const int64_t* documents = nullptr;  // of the sample; null: it is one
};

// The documents of a sample, by query; null: it is one.
inline const int64_t* documents_of(const AttentionShape& shape, int64_t sample) {
  return shape.documents != nullptr ? shape.documents + sample * shape.sequence : nullptr;
}

// Rotates a head's rows by their positions, which each document counts from its first row on.
template <typename C>
void rotate_rows(const AttentionShape& shape, const HeadSteps<C>& steps, C direction, const C* from,
                 int64_t from_stride, C* to, int64_t to_stride) {
  for (int64_t begin = 0, end = 0; begin < steps.count; begin = end) {
    end = steps.count;
    if (steps.documents != nullptr) {
      end =
          std::upper_bound(steps.documents + begin, steps.documents + end, begin) - steps.documents;
    }
    rotate(end - begin, shape.head_dim, shape.rotary.dim, steps.rotations, direction,
           from + begin * from_stride, from_stride, to + begin * to_stride, to_stride);
  }
}

template <typename T>
void load_head(const AttentionShape& shape, const T* rows, const HeadSteps<Wide<T>>& steps,
               Wide<T>* to) {
  const int64_t count = steps.count, d = steps.dim;
  if constexpr (!kIsNarrow<T>) {
    if (steps.rotations != nullptr && steps.bias == nullptr && steps.norm == nullptr) {
      return rotate_rows(shape, steps, T(1), rows, steps.stride, to, d);
    }
  }
  load_rows(d, count, rows, steps.stride, steps.bias, to);
  if (steps.norm != nullptr) {
    norm_forward(norm_shape_of(shape, count), Wide<T>(shape.norm_epsilon), to, steps.norm->weight,
                 steps.norm->bias, to, steps.stats);
  }
  if (steps.rotations != nullptr) {
    rotate_rows(shape, steps, Wide<T>(1), to, d, to, d);
  }
}

// The way back of load_head(), for a gradient whose rows lie `stride` apart; `raw` is a buffer for
// the head before its norm.
template <typename T>
void turn_back(const AttentionShape& shape, const T* rows, const HeadSteps<Wide<T>>& steps,
               Wide<T>* gradient, int64_t stride, Wide<T>* raw) {
  const int64_t count = steps.count;
  if (steps.rotations != nullptr) {
    rotate_rows(shape, steps, Wide<T>(-1), gradient, stride, gradient, stride);
  }
  if (steps.norm != nullptr) {  // then stride is d
    load_rows(steps.dim, count, rows, steps.stride, steps.bias, raw);
    norm_backward(norm_shape_of(shape, count), gradient, raw, steps.stats, steps.norm->weight,
                  static_cast<const Wide<T>*>(nullptr), gradient, steps.norm->weight_gradient,
                  steps.norm->bias_gradient);
  }
}

// Where the heads lie in the rows, and how each is made.
template <typename T>
class HeadMaker {
 public:
  using C = Wide<std::remove_const_t<T>>;
  // Fills `rotations`, table_elements() of them.
  HeadMaker(const AttentionShape& shape, const AttentionParameters<C>& given,
            const AttentionRows<T>& rows, C* rotations)
      : shape_(shape),
        given_(given),
        rows_(rows),
        rotations_(shape.rotary.dim > 0 ? rotations : nullptr) {
    if (rotations_ != nullptr) fill_rotations(shape, rotations);
  }

  T* query(int64_t sample, int64_t head) const {
    return rows_.queries + sample * shape_.sequence * rows_.query_stride + head * shape_.head_dim;
  }
  T* key(int64_t sample, int64_t kv) const {
    return rows_.keys + sample * shape_.keys * rows_.key_stride + kv * shape_.head_dim;
  }
  T* value(int64_t sample, int64_t kv) const {
    return rows_.keys + sample * shape_.keys * rows_.key_stride + shape_.key_cols() +
           kv * shape_.value_width();
  }

  HeadSteps<C> query_steps(int64_t sample, int64_t head, C* stats) const {
    return {shape_.head_dim,
            shape_.sequence,
            rows_.query_stride,
            bias_of(head),
            norm(given_.q_norm),
            rotations_,
            stats,
            documents_of(shape_, sample)};
  }
  HeadSteps<C> key_steps(int64_t sample, int64_t kv, C* stats) const {
    return {shape_.head_dim,
            shape_.keys,
            rows_.key_stride,
            bias_of(shape_.heads + kv),
            norm(given_.k_norm),
            rotations_,
            stats,
            documents_of(shape_, sample)};
  }
  HeadSteps<C> value_steps(int64_t kv) const {
    return {.dim = shape_.value_width(),
            .count = shape_.keys,
            .stride = rows_.key_stride,
            .bias = bias_of(shape_.heads + shape_.kv_heads + kv)};
  }

 private:
  // Of all heads: those of queries, of keys, of values. With a bias all are of the same width.
  const C* bias_of(int64_t head) const {
    return given_.bias != nullptr ? given_.bias + head * shape_.head_dim : nullptr;
  }
  const HeadNorm<C>* norm(const HeadNorm<C>& norm) const {
    return shape_.has_head_norms ? &norm : nullptr;
  }

  const AttentionShape& shape_;
  const AttentionParameters<C>& given_;
  const AttentionRows<T>& rows_;
  const C* rotations_;
};

}  // namespace smp::kernels
