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

// Rotations [count, dim] of the positions from `first` on: cosines of the dim / 2 frequencies, then
// their sines. Position by position each is turned by its frequency, and computed afresh often
// enough to stay exact.
template <typename T>
void fill_rotations(const program::RotaryAttributes& rotary, int64_t first, int64_t count,
                    T* table) {
  const int64_t dim = rotary.dim, half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = rotary_frequency(rotary, i);
    const double turn_cos = std::cos(frequency), turn_sin = std::sin(frequency);
    double c = 1, s = 0;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t position = first + r;
      if (r == 0 || position % kExactEvery == 0) {
        c = std::cos(frequency * static_cast<double>(position));
        s = std::sin(frequency * static_cast<double>(position));
      }
      table[r * dim + i] = static_cast<T>(rotary.attention_factor * c);
      table[r * dim + half + i] = static_cast<T>(rotary.attention_factor * s);
      const double turned = c * turn_cos - s * turn_sin;
      s = s * turn_cos + c * turn_sin;
      c = turned;
    }
  }
}

// Rotations [sequence, dim] of a sample's rows where the rank has slices of it: each by its
// position, which counts from its document's first token.
template <typename T>
void fill_rotations_of_slices(const AttentionShape& shape, const int64_t* documents, T* table) {
  for (int64_t begin = 0, end = 0; begin < shape.sequence; begin = end) {
    end = begin + shape.slices.neighbours(begin, shape.sequence);
    int64_t position = shape.slices.position(begin);
    if (documents != nullptr) {
      end = std::upper_bound(documents + begin, documents + end, documents[begin]) - documents;
      position -= documents[begin];
    }
    fill_rotations(shape.rotary, position, end - begin, table + begin * shape.rotary.dim);
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
  const int64_t* documents = nullptr;  // where `rotations` begin anew; null: nowhere
};

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
  // `rotations` is a buffer of table_elements(); where the rank has slices of a sample,
  // begin_sample() fills it.
  HeadMaker(const AttentionShape& shape, const AttentionParameters<C>& given,
            const AttentionRows<T>& rows, C* rotations)
      : shape_(shape),
        given_(given),
        rows_(rows),
        rotations_(shape.rotary.dim > 0 ? rotations : nullptr) {
    if (rotations_ == nullptr) return;
    if (shape.slices.are_whole()) {
      fill_rotations(shape.rotary, 0, shape.longer(), rotations_);
    } else if (shape.documents == nullptr) {
      fill_rotations_of_slices(shape, nullptr, rotations_);
    }
  }

  // Before the heads of a sample are taken, where the rank has slices of it.
  void begin_sample(int64_t sample) {
    if (rotations_ == nullptr || shape_.documents == nullptr || sample == sample_) return;
    if (!shape_.slices.are_whole()) {
      fill_rotations_of_slices(shape_, documents_of(shape_, sample), rotations_);
    }
    sample_ = sample;
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
    return {shape_.head_dim, shape_.sequence,     rows_.query_stride,
            bias_of(head),   norm(given_.q_norm), rotations_,
            stats,           restarts_of(sample)};
  }
  HeadSteps<C> key_steps(int64_t sample, int64_t kv, C* stats) const {
    return {shape_.head_dim,
            shape_.keys,
            rows_.key_stride,
            bias_of(shape_.heads + kv),
            norm(given_.k_norm),
            rotations_,
            stats,
            restarts_of(sample)};
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
  // A table of slices has a row for each row of the head.
  const int64_t* restarts_of(int64_t sample) const {
    return shape_.slices.are_whole() ? documents_of(shape_, sample) : nullptr;
  }
  const HeadNorm<C>* norm(const HeadNorm<C>& norm) const {
    return shape_.has_head_norms ? &norm : nullptr;
  }

  const AttentionShape& shape_;
  const AttentionParameters<C>& given_;
  const AttentionRows<T>& rows_;
  C* rotations_;
  int64_t sample_ = -1;  // that the table is of, where it has documents
};

}  // namespace smp::kernels
