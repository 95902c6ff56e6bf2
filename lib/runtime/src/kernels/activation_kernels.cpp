#include <algorithm>
#include <vector>

#include "kernels/activation_math.h"

namespace smp::kernels {
namespace {

constexpr int64_t kBlock = 64;  // rows of one partial column sum

template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void plain_forward(int64_t rows, int64_t cols, const T* u, const T* bias, T* y) {
  for (int64_t r = 0; r < rows; ++r, u += cols, y += cols) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = value_of<kKind>(kBias ? u[c] + bias[c] : u[c]);
  }
}

template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void gated_forward(int64_t rows, int64_t cols, const T* u, const T* bias, T* y) {
  for (int64_t r = 0; r < rows; ++r, u += 2 * cols, y += cols) {
    const T* up = u + cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const T gate = kBias ? u[c] + bias[c] : u[c];
      y[c] = value_of<kKind>(gate) * (kBias ? up[c] + bias[cols + c] : up[c]);
    }
  }
}

// `sums` gets the column sums of the gradient of u.
template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void plain_backward(int64_t rows, int64_t cols, T* u, const T* bias, T* dy, T* sums) {
  for (int64_t r = 0; r < rows; ++r, u += cols, dy += cols) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const Slope<T> at = slope_of<kKind>(kBias ? u[c] + bias[c] : u[c]);
      const T du = dy[c] * at.derivative;
      u[c] = at.value;
      dy[c] = du;
      if constexpr (kBias) sums[c] += du;
    }
  }
}

template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void gated_backward(int64_t rows, int64_t cols, T* u, const T* bias, T* dy, T* sums) {
  for (int64_t r = 0; r < rows; ++r, u += 2 * cols, dy += cols) {
    T* up = u + cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const Slope<T> at = slope_of<kKind>(kBias ? u[c] + bias[c] : u[c]);
      const T raised = kBias ? up[c] + bias[cols + c] : up[c];
      const T d = dy[c];
      u[c] = d * raised * at.derivative;
      up[c] = d * at.value;
      dy[c] = at.value * raised;
      if constexpr (kBias) {
        sums[c] += u[c];
        sums[cols + c] += up[c];
      }
    }
  }
}

template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void forward_loop(const ActivationShape& shape, const T* u, const T* bias, T* y) {
  if (shape.gated) {
    gated_forward<kKind, kBias>(shape.rows, shape.cols, u, bias, y);
  } else {
    plain_forward<kKind, kBias>(shape.rows, shape.cols, u, bias, y);
  }
}

template <ActivationKind kKind, bool kBias, typename T>
SMP_INLINE void backward_loop(const ActivationShape& shape, T* u, const T* bias, T* dy, T* dbias) {
  const int64_t cols = shape.cols, u_cols = shape.gated ? 2 * cols : cols;
  std::vector<T> sums(static_cast<size_t>(kBias ? u_cols : 0));
  for (int64_t begin = 0; begin < shape.rows; begin += kBlock) {
    std::fill(sums.begin(), sums.end(), T(0));
    const int64_t rows = std::min(shape.rows - begin, kBlock);
    if (shape.gated) {
      gated_backward<kKind, kBias>(rows, cols, u, bias, dy, sums.data());
    } else {
      plain_backward<kKind, kBias>(rows, cols, u, bias, dy, sums.data());
    }
    u += rows * u_cols;
    dy += rows * cols;
    if constexpr (kBias) {
      for (int64_t c = 0; c < u_cols; ++c) dbias[c] += sums[static_cast<size_t>(c)];
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
SMP_INLINE void accumulate_loop(int64_t count, const T* x, T* sums) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sums[i] += x[i];
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

// A macro, since a lambda would not be part of the clone that calls it.
#define SMP_EACH_KIND(loop, ...)                                                         \
  switch (shape.activation) {                                                            \
    case ActivationKind::kGelu:                                                          \
      if (bias != nullptr) return loop<ActivationKind::kGelu, true>(__VA_ARGS__);        \
      return loop<ActivationKind::kGelu, false>(__VA_ARGS__);                            \
    case ActivationKind::kGeluErf:                                                       \
      if (bias != nullptr) return loop<ActivationKind::kGeluErf, true>(__VA_ARGS__);     \
      return loop<ActivationKind::kGeluErf, false>(__VA_ARGS__);                         \
    case ActivationKind::kGeluSigmoid:                                                   \
      if (bias != nullptr) return loop<ActivationKind::kGeluSigmoid, true>(__VA_ARGS__); \
      return loop<ActivationKind::kGeluSigmoid, false>(__VA_ARGS__);                     \
    case ActivationKind::kRelu:                                                          \
      if (bias != nullptr) return loop<ActivationKind::kRelu, true>(__VA_ARGS__);        \
      return loop<ActivationKind::kRelu, false>(__VA_ARGS__);                            \
    case ActivationKind::kSilu:                                                          \
      if (bias != nullptr) return loop<ActivationKind::kSilu, true>(__VA_ARGS__);        \
      return loop<ActivationKind::kSilu, false>(__VA_ARGS__);                            \
  }

#define SMP_DEFINE(T)                                                                        \
  SMP_VECTOR_CLONES void activation_forward(                                                 \
      const ActivationShape& shape, const T* u, const T* bias,                               \
      T* y){SMP_EACH_KIND(forward_loop, shape, u, bias, y)} SMP_VECTOR_CLONES void           \
  activation_backward(const ActivationShape& shape, T* u, const T* bias, T* dy, T* dbias){   \
      SMP_EACH_KIND(backward_loop, shape, u, bias, dy, dbias)} SMP_VECTOR_CLONES void        \
  accumulate(int64_t count, const T* x, T* sums) {                                           \
    accumulate_loop(count, x, sums);                                                         \
  }                                                                                          \
  SMP_VECTOR_CLONES void add_column_sums(int64_t rows, int64_t cols, const T* x, T* sums) {  \
    column_sums_loop(rows, cols, x, sums);                                                   \
  }                                                                                          \
  SMP_VECTOR_CLONES void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, \
                                      T* y) {                                                \
    residual_loop(rows, cols, x, bias, y);                                                   \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
