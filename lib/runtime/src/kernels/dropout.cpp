#include "kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/dropout_factors.h"
#include "kernels/vector_math.h"
#include "smp/plan/base/check.h"

namespace smp::kernels {
namespace {

// One row: y = x * factors, or x + (y + bias) * factors; `factors` is a buffer of kDropoutColumns.
template <bool kResidual, typename T>
SMP_INLINE void drop_row(const DropoutRow& row, T factor, int64_t first_col, int64_t cols,
                         const T* x, const T* bias, T* y, T* factors) {
  for (int64_t c = 0; c < cols;) {
    const int64_t into = (first_col + c) % kDropoutColumns;
    const int64_t n = std::min(kDropoutColumns - into, cols - c);
    dropout_factors(row, first_col + c - into, factor, factors);
    const T* f = factors + into;
    if constexpr (!kResidual) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[c + i] = x[c + i] * f[i];
    } else if (bias != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[c + i] = x[c + i] + (y[c + i] + bias[c + i]) * f[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[c + i] = x[c + i] + y[c + i] * f[i];
    }
    c += n;
  }
}

template <bool kResidual, typename T>
SMP_INLINE void drop_rows(const Dropout& dropout, int64_t rows, int64_t cols, const T* x,
                          const T* bias, T* y) {
  T factors[kDropoutColumns];
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const DropoutRow row = dropout.row(r);
    drop_row<kResidual>(row, static_cast<T>(row.factor()), dropout.first_col, cols, x, bias, y,
                        factors);
  }
}

}  // namespace

Dropout dropout_of(const program::DropoutAttributes& attributes, const CallContext& call) {
  const double share = attributes.share;
  SMP_CHECK(share >= 0 && share < 1 && attributes.sample_rows > 0);
  if (share == 0 || !call.trains) return {};
  const PhiloxKey stream = stream_key(call.seed, "dropout");
  const PhiloxBlock block = philox4x32_10(
      {static_cast<uint32_t>(call.step), static_cast<uint32_t>(call.step >> 32),
       static_cast<uint32_t>(attributes.layer), static_cast<uint32_t>(attributes.site)},
      stream);
  return {.key = {block[0], block[1]},
          .threshold = static_cast<uint32_t>(std::min(65535L, std::lround(share * 65536.0))),
          .first_sample = call.first_sample,
          .sample_rows = attributes.sample_rows,
          .first_row = attributes.first_row,
          .slices = attributes.slices,
          .first_col = attributes.first_col,
          .rows_before = attributes.rows_before};
}

#define SMP_DEFINE(T)                                                                             \
  SMP_VECTOR_CLONES void drop(const Dropout& dropout, int64_t rows, int64_t cols, const T* x,     \
                              T* y) {                                                             \
    drop_rows<false>(dropout, rows, cols, x, static_cast<const T*>(nullptr), y);                  \
  }                                                                                               \
  SMP_VECTOR_CLONES void add_residual_dropped(const Dropout& dropout, int64_t rows, int64_t cols, \
                                              const T* x, const T* bias, T* y) {                  \
    drop_rows<true>(dropout, rows, cols, x, bias, y);                                             \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
