#pragma once

#include <cstdint>

// Products of blocks that lie in cache, for loops in which a call of a BLAS, with its packing,
// costs as much as the product. Vector registers hold 8 rows by two vectors of c while the depth is
// walked.
namespace smp::kernels {

// Rows that are worked on at once: more per call should be a multiple.
inline constexpr int64_t kProductRows = 8;
// Elements that may be read, and are ignored, beyond the end of a row of b.
inline constexpr int64_t kProductOverread = 16;

// A [rows, depth] factor: element (r, k) is data[r * row_stride + k * depth_stride].
template <typename T>
struct Factor {
  const T* data;
  int64_t row_stride;
  int64_t depth_stride;
};

// c [rows, cols] = scale * a b, or that added to c. b is [depth, cols]. b_stride and c_stride are
// the distances between rows.
void block_product(int64_t rows, int64_t cols, int64_t depth, float scale, const Factor<float>& a,
                   const float* b, int64_t b_stride, bool add, float* c, int64_t c_stride);
void block_product(int64_t rows, int64_t cols, int64_t depth, double scale, const Factor<double>& a,
                   const double* b, int64_t b_stride, bool add, double* c, int64_t c_stride);

}  // namespace smp::kernels
