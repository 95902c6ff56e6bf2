#include <algorithm>
#include <vector>

#include "functions/kernels.h"
#include "functions/vector_math.h"

namespace smp {
namespace {

constexpr int64_t kBlock = 64;  // rows of one partial column sum

// gelu_tanh(u) = u/2 * (1 + tanh(z/2)) = u * sigmoid(z) with z = 2 sqrt(2/pi) (u + 0.044715 u^3):
// the same function (Hendrycks and Gimpel 2016) without the cancellation of 1 + tanh.
template <typename T>
constexpr T kGeluScale = T(1.5957691216057307117597842397375);  // 2 sqrt(2/pi)
template <typename T>
constexpr T kGeluCubic = T(0.044715);

template <typename T>
SMP_INLINE T gelu_sigmoid(T u) {
  return vector_sigmoid(kGeluScale<T> * u * (T(1) + kGeluCubic<T> * u * u));
}

template <typename T>
SMP_INLINE void gelu_forward_loop(int64_t rows, int64_t cols, const T* u, const T* bias, T* y) {
  for (int64_t r = 0; r < rows; ++r, u += cols, y += cols) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const T v = u[c] + bias[c];
      y[c] = v * gelu_sigmoid(v);
    }
  }
}

template <typename T>
SMP_INLINE void gelu_backward_loop(int64_t rows, int64_t cols, T* u, const T* bias, T* dy,
                                   T* dbias) {
  std::vector<T> sums(static_cast<size_t>(cols));
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    std::fill(sums.begin(), sums.end(), T(0));
    const int64_t end = std::min(rows, begin + kBlock);
    for (int64_t r = begin; r < end; ++r, u += cols, dy += cols) {
      T* sum = sums.data();
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) {
        const T v = u[c] + bias[c];
        const T s = gelu_sigmoid(v);
        const T slope = kGeluScale<T> * (T(1) + T(3) * kGeluCubic<T> * v * v);
        const T du = dy[c] * (s + v * s * (T(1) - s) * slope);
        u[c] = v * s;
        dy[c] = du;
        sum[c] += du;
      }
    }
    for (int64_t c = 0; c < cols; ++c) dbias[c] += sums[c];
  }
}

template <typename T>
SMP_INLINE void swiglu_forward_loop(int64_t rows, int64_t cols, const T* gate_up, T* y) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * cols, y += cols) {
    const T* up = gate_up + cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = gate_up[c] * vector_sigmoid(gate_up[c]) * up[c];
  }
}

template <typename T>
SMP_INLINE void swiglu_backward_loop(int64_t rows, int64_t cols, T* gate_up, T* dy) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * cols, dy += cols) {
    T* up = gate_up + cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const T g = gate_up[c], u = up[c], d = dy[c];
      const T s = vector_sigmoid(g);
      const T silu = g * s;
      gate_up[c] = d * u * (s + silu * (T(1) - s));
      up[c] = d * silu;
      dy[c] = silu * u;
    }
  }
}

template <typename T>
SMP_INLINE void column_sums_loop(int64_t rows, int64_t cols, const T* x, T* total) {
  std::vector<T> sums(static_cast<size_t>(cols));
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    std::fill(sums.begin(), sums.end(), T(0));
    const int64_t end = std::min(rows, begin + kBlock);
    for (int64_t r = begin; r < end; ++r, x += cols) {
      T* sum = sums.data();
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) sum[c] += x[c];
    }
    for (int64_t c = 0; c < cols; ++c) total[c] += sums[c];
  }
}

template <typename T>
SMP_INLINE void residual_loop(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    if (bias != nullptr) {
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) y[c] = x[c] + (y[c] + bias[c]);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) y[c] = x[c] + y[c];
    }
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                          \
  SMP_VECTOR_CLONES void gelu_forward(int64_t rows, int64_t cols, const T* u, const T* bias,   \
                                      T* y) {                                                  \
    gelu_forward_loop(rows, cols, u, bias, y);                                                 \
  }                                                                                            \
  SMP_VECTOR_CLONES void gelu_backward(int64_t rows, int64_t cols, T* u, const T* bias, T* dy, \
                                       T* dbias) {                                             \
    gelu_backward_loop(rows, cols, u, bias, dy, dbias);                                        \
  }                                                                                            \
  SMP_VECTOR_CLONES void swiglu_forward(int64_t rows, int64_t cols, const T* gate_up, T* y) {  \
    swiglu_forward_loop(rows, cols, gate_up, y);                                               \
  }                                                                                            \
  SMP_VECTOR_CLONES void swiglu_backward(int64_t rows, int64_t cols, T* gate_up, T* dy) {      \
    swiglu_backward_loop(rows, cols, gate_up, dy);                                             \
  }                                                                                            \
  SMP_VECTOR_CLONES void add_column_sums(int64_t rows, int64_t cols, const T* x, T* sums) {    \
    column_sums_loop(rows, cols, x, sums);                                                     \
  }                                                                                            \
  SMP_VECTOR_CLONES void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias,   \
                                      T* y) {                                                  \
    residual_loop(rows, cols, x, bias, y);                                                     \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp
