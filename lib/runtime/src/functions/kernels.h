#pragma once

#include <cstdint>

// Loops over plain arrays, row-major, one thread. Each exists in fp32 and fp64. Sums over rows are
// taken in blocks, in a fixed order. They are what ATen has no fused form of; matmuls stay ATen's.
namespace smp {

// The norm of a row: (x - mean) * rstd * weight + bias. LayerNorm keeps (mean, rstd) of each row in
// `stats`; RMSNorm has no mean and no bias, and keeps rstd alone.
struct NormShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool centered = true;  // LayerNorm

  int64_t stats_per_row() const { return centered ? 2 : 1; }
};

#define SMP_KERNELS_OF(T)                                                                          \
  /* y and stats are written; bias may be null. */                                                 \
  void norm_forward(const NormShape& shape, T epsilon, const T* x, const T* weight, const T* bias, \
                    T* y, T* stats);                                                               \
  /* y again, from the kept stats. */                                                              \
  void norm_apply(const NormShape& shape, const T* x, const T* stats, const T* weight,             \
                  const T* bias, T* y);                                                            \
  /* dx = residual + gradient of the norm; dx may be dy, residual may be null. Adds to the weight  \
     and bias gradients. */                                                                        \
  void norm_backward(const NormShape& shape, const T* dy, const T* x, const T* stats,              \
                     const T* weight, const T* residual, T* dx, T* dweight, T* dbias);             \
                                                                                                   \
  /* y = gelu_tanh(u + bias) */                                                                    \
  void gelu_forward(int64_t rows, int64_t cols, const T* u, const T* bias, T* y);                  \
  /* On entry u as in forward and dy; on exit y in u and du in dy. Adds du's column sums to        \
     dbias. */                                                                                     \
  void gelu_backward(int64_t rows, int64_t cols, T* u, const T* bias, T* dy, T* dbias);            \
                                                                                                   \
  /* gate_up is [rows, 2 * cols]; y = silu(gate) * up. */                                          \
  void swiglu_forward(int64_t rows, int64_t cols, const T* gate_up, T* y);                         \
  /* On exit the gradient in gate_up and y in dy. */                                               \
  void swiglu_backward(int64_t rows, int64_t cols, T* gate_up, T* dy);                             \
                                                                                                   \
  /* sums[c] += sum over rows of x[r, c] */                                                        \
  void add_column_sums(int64_t rows, int64_t cols, const T* x, T* sums);                           \
  /* y += x + bias in each row; bias may be null. */                                               \
  void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y);                  \
                                                                                                   \
  /* Softmax statistics of logits [rows, cols], whose columns are the vocabulary entries from      \
     `begin` on. Three steps, so that tensor-parallel ranks can reduce in between.                 \
     1: maximum of each row. */                                                                    \
  void row_maxima(int64_t rows, int64_t cols, const T* logits, T* maxima);                         \
  /* 2: logits become exp(logits - maximum); sums of each row; the target's logit - maximum, or    \
     0 where another rank has it. */                                                               \
  void exponentials(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,             \
                    const T* maxima, T* logits, T* sums, T* target_logits);                        \
  /* 3: exponentials become scale * (softmax - one_hot(target)). */                                \
  void softmax_gradient(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,         \
                        const T* sums, T scale, T* exponentials);

SMP_KERNELS_OF(float)
SMP_KERNELS_OF(double)
#undef SMP_KERNELS_OF

}  // namespace smp
