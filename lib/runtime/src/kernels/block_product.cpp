#include "kernels/block_product.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/vector_math.h"

namespace smp::kernels {
namespace {

template <typename T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

// kRows rows by kVectors vectors of c; the last vector's first `cols` elements are stored.
template <int kRows, int kVectors, int kBytes, typename T>
SMP_INLINE void tile(int64_t depth, T scale, const Factor<T>& a, const T* b, int64_t b_stride,
                     bool add, T* c, int64_t c_stride, int64_t cols) {
  using Vector = typename VectorOf<T, kBytes>::Type;
  constexpr int64_t kLanes = kBytes / sizeof(T);
  Vector sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[kVectors];
    std::memcpy(row, b + k * b_stride, sizeof(row));
    const T* column = a.data + k * a.depth_stride;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] += column[r * a.row_stride] * row[v];
    }
  }
  if (cols == kVectors * kLanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        T* to = c + r * c_stride + v * kLanes;
        Vector sum = scale * sums[r][v];
        if (add) {
          Vector before;
          std::memcpy(&before, to, sizeof(before));
          sum += before;
        }
        std::memcpy(to, &sum, sizeof(sum));
      }
    }
    return;
  }
  for (int r = 0; r < kRows; ++r) {
    T part[kVectors * kLanes];
    std::memcpy(part, sums[r], sizeof(part));
    for (int64_t j = 0; j < cols; ++j) {
      T& to = c[r * c_stride + j];
      to = add ? to + scale * part[j] : scale * part[j];
    }
  }
}

template <int kRows, int kBytes, typename T>
SMP_INLINE void strip(int64_t cols, int64_t depth, T scale, const Factor<T>& a, const T* b,
                      int64_t b_stride, bool add, T* c, int64_t c_stride) {
  constexpr int64_t kLanes = kBytes / sizeof(T);
  int64_t j = 0;
  for (; j + 2 * kLanes <= cols; j += 2 * kLanes) {
    tile<kRows, 2, kBytes>(depth, scale, a, b + j, b_stride, add, c + j, c_stride, 2 * kLanes);
  }
  for (; j < cols; j += kLanes) {
    tile<kRows, 1, kBytes>(depth, scale, a, b + j, b_stride, add, c + j, c_stride,
                           std::min(kLanes, cols - j));
  }
}

template <int kBytes, typename T>
SMP_INLINE void product(int64_t rows, int64_t cols, int64_t depth, T scale, const Factor<T>& a,
                        const T* b, int64_t b_stride, bool add, T* c, int64_t c_stride) {
  Factor<T> part = a;
  for (; rows >= kProductRows; rows -= kProductRows) {
    strip<kProductRows, kBytes>(cols, depth, scale, part, b, b_stride, add, c, c_stride);
    part.data += kProductRows * a.row_stride;
    c += kProductRows * c_stride;
  }
  for (; rows > 0; --rows) {
    strip<1, kBytes>(cols, depth, scale, part, b, b_stride, add, c, c_stride);
    part.data += a.row_stride;
    c += c_stride;
  }
}

using FloatProduct = void (*)(int64_t, int64_t, int64_t, float, const Factor<float>&, const float*,
                              int64_t, bool, float*, int64_t);
using DoubleProduct = void (*)(int64_t, int64_t, int64_t, double, const Factor<double>&,
                               const double*, int64_t, bool, double*, int64_t);

}  // namespace

#define SMP_DEFINE(T, Pointer)                                                                 \
  namespace {                                                                                  \
  __attribute__((target("arch=x86-64-v4,prefer-vector-width=512"))) void product_512(          \
      int64_t rows, int64_t cols, int64_t depth, T scale, const Factor<T>& a, const T* b,      \
      int64_t b_stride, bool add, T* c, int64_t c_stride) {                                    \
    product<64>(rows, cols, depth, scale, a, b, b_stride, add, c, c_stride);                   \
  }                                                                                            \
  __attribute__((target("arch=x86-64-v3"))) void product_256(int64_t rows, int64_t cols,       \
                                                             int64_t depth, T scale,           \
                                                             const Factor<T>& a, const T* b,   \
                                                             int64_t b_stride, bool add, T* c, \
                                                             int64_t c_stride) {               \
    product<32>(rows, cols, depth, scale, a, b, b_stride, add, c, c_stride);                   \
  }                                                                                            \
  void product_128(int64_t rows, int64_t cols, int64_t depth, T scale, const Factor<T>& a,     \
                   const T* b, int64_t b_stride, bool add, T* c, int64_t c_stride) {           \
    product<16>(rows, cols, depth, scale, a, b, b_stride, add, c, c_stride);                   \
  }                                                                                            \
  }                                                                                            \
  void block_product(int64_t rows, int64_t cols, int64_t depth, T scale, const Factor<T>& a,   \
                     const T* b, int64_t b_stride, bool add, T* c, int64_t c_stride) {         \
    static const Pointer chosen = []() -> Pointer {                                            \
      if (__builtin_cpu_supports("x86-64-v4")) return product_512;                             \
      if (__builtin_cpu_supports("x86-64-v3")) return product_256;                             \
      return product_128;                                                                      \
    }();                                                                                       \
    chosen(rows, cols, depth, scale, a, b, b_stride, add, c, c_stride);                        \
  }

SMP_DEFINE(float, FloatProduct)
SMP_DEFINE(double, DoubleProduct)

}  // namespace smp::kernels
