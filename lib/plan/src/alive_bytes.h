#pragma once

#include <algorithm>
#include <cstdint>

#include "smp/plan/dtype.h"

// What the descriptions of layers count memory with. Only lib/plan's own sources include this.
namespace smp {

// Bytes alive above those at the start, and the most there ever were.
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

// Of statistics, scratch buffers and the gradients of weights.
inline int64_t wide_bytes(DType dtype) { return bytes_of(dtype) == 2 ? 4 : bytes_of(dtype); }

// What lives while the gradient of a matrix [rows, cols] is made of `tokens` rows of both factors.
// In fp32: the product, before it is added to the flat buffer, and a transposed copy of the
// narrower factor, which has a row per token. In fp64 the product adds to the buffer itself. 16-bit
// factors are both widened.
inline int64_t weight_gradient_bytes(DType dtype, int64_t tokens, int64_t rows, int64_t cols) {
  if (dtype == DType::kF64) return 0;
  const int64_t factors = bytes_of(dtype) == 2 ? rows + cols : std::min(rows, cols);
  return wide_bytes(dtype) * (rows * cols + tokens * factors);
}

}  // namespace smp
