#pragma once

#include <algorithm>
#include <cstdint>

#include "smp/plan/base/dtype.h"

// The counters of memory for the descriptions of layers. Only lib/plan's own sources include this.
namespace smp::model {

// Bytes alive above those at the start, and their maximum so far.
class Alive {
 public:
  void add(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void drop(int64_t bytes) { now_ -= bytes; }
  // A tensor that lives only while `during` more bytes are added.
  void pass(int64_t bytes, int64_t during) {
    add(bytes);
    add(during);
    drop(bytes);
  }

  int64_t now() const { return now_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

// Bytes of statistics, scratch buffers and gradients of weights.
inline int64_t wide_bytes(DType dtype) { return bytes_of(dtype) == 2 ? 4 : bytes_of(dtype); }

// The product of [rows, depth] and the transpose of [cols, depth], which is kept. fp16 uses fp32
// copies.
inline void add_product(Alive& alive, DType dtype, int64_t rows, int64_t depth, int64_t cols) {
  const int64_t bytes = bytes_of(dtype) * rows * cols;
  if (dtype != DType::kF16) return alive.add(bytes);
  const int64_t wide_factors = wide_bytes(dtype) * depth * (rows + cols);
  const int64_t wide_result = wide_bytes(dtype) * rows * cols;
  alive.add(wide_factors);
  alive.add(wide_result);
  alive.drop(wide_factors);
  alive.add(bytes);
  alive.drop(wide_result);
}

// Most bytes alive while the product is computed, its result included.
inline int64_t product_peak(DType dtype, int64_t rows, int64_t depth, int64_t cols) {
  Alive alive;
  add_product(alive, dtype, rows, depth, cols);
  return alive.peak();
}

// Bytes alive while the gradient of a matrix [rows, cols] is computed from `tokens` rows of both
// factors. In fp32: the product, before it is added to the flat buffer, and a transposed copy of
// the narrower factor, which has a row per token. In fp64 the product adds to the buffer itself.
// Both 16-bit factors are widened.
inline int64_t weight_gradient_bytes(DType dtype, int64_t tokens, int64_t rows, int64_t cols) {
  if (dtype == DType::kF64) return 0;
  const int64_t narrower = std::min(rows, cols);
  // One column, or one row, is its own transpose.
  const int64_t copied = narrower > 1 && tokens > 1 ? narrower : 0;
  const int64_t factors = bytes_of(dtype) == 2 ? rows + cols : copied;
  return wide_bytes(dtype) * (rows * cols + tokens * factors);
}

}  // namespace smp::model
