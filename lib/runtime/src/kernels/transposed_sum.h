#pragma once

#include <cstdint>

namespace smp::kernels {

// sums[r * stride + c] += scale * x[c * rows + r]: x [cols, rows], sums [rows, cols] whose rows lie
// `stride` elements apart.
void add_transposed(int64_t rows, int64_t cols, float scale, const float* x, float* sums,
                    int64_t stride);

}  // namespace smp::kernels
