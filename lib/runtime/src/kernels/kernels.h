#pragma once

#include <cstdint>

#include "kernels/dropout.h"
#include "kernels/wide.h"
#include "smp/plan/program/attributes.h"

// Loops over plain arrays, row-major, one thread. Each exists in fp64, fp32, bf16 and fp16; the
// 16-bit ones widen a few rows at a time and run the fp32 loop on them. Sums over rows are taken in
// blocks, in a fixed order. They are what ATen has no fused form of; matmuls stay ATen's.
namespace smp::kernels {

// The norm of a row: (x - mean) * rstd * weight + bias. LayerNorm keeps (mean, rstd) of each row in
// `stats`; RMSNorm has no mean and no bias, and keeps rstd alone.
struct NormShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool centered = true;  // LayerNorm

  constexpr int64_t stats_per_row() const { return centered ? 2 : 1; }
};

using program::ActivationKind;

// Of u [rows, cols], or gated: u [rows, 2 * cols] holds (gate, up), and the result is
// activation(gate) * up.
struct ActivationShape {
  int64_t rows = 0;
  int64_t cols = 0;  // of the result
  ActivationKind activation = ActivationKind::kGelu;
  bool gated = false;
};

#define SMP_KERNELS_OF(T)                                                                          \
  /* y and stats are written; bias may be null, y may be x. */                                     \
  void norm_forward(const NormShape& shape, Wide<T> epsilon, const T* x, const T* weight,          \
                    const T* bias, T* y, Wide<T>* stats);                                          \
  /* y = x + dropout of (y + bias), and norm_forward() of it; bias may be null, dropout off. */    \
  void sum_and_norm(const NormShape& shape, const Dropout& dropout, Wide<T> epsilon, const T* x,   \
                    const T* bias, T* y, const T* weight, const T* norm_bias, T* normed,           \
                    Wide<T>* stats);                                                               \
  /* y again, from the kept stats. */                                                              \
  void norm_apply(const NormShape& shape, const T* x, const Wide<T>* stats, const T* weight,       \
                  const T* bias, T* y);                                                            \
  /* dx = residual + gradient of the norm; dx may be dy, residual may be null. Adds to the weight  \
     and bias gradients. */                                                                        \
  void norm_backward(const NormShape& shape, const T* dy, const T* x, const Wide<T>* stats,        \
                     const T* weight, const T* residual, T* dx, Wide<T>* dweight, Wide<T>* dbias); \
                                                                                                   \
  /* y = activation(u + bias), gated or not; bias, of u's columns, may be null. */                 \
  void activation_forward(const ActivationShape& shape, const T* u, const T* bias, T* y);          \
  /* On entry u as in forward and dy. On exit the gradient of u, and y: gated, the gradient lies   \
     in u and y in dy, else the other way round. A bias's gradient is added to dbias. */           \
  void activation_backward(const ActivationShape& shape, T* u, const T* bias, T* dy,               \
                           Wide<T>* dbias);                                                        \
                                                                                                   \
  /* sums[c] += sum over rows of x[r, c] */                                                        \
  void add_column_sums(int64_t rows, int64_t cols, const T* x, Wide<T>* sums);                     \
  /* sums += x */                                                                                  \
  void accumulate(int64_t count, const T* x, Wide<T>* sums);                                       \
  /* y += x + bias in each row; bias may be null. */                                               \
  void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y);

SMP_KERNELS_OF(float)
SMP_KERNELS_OF(double)
SMP_KERNELS_OF(c10::BFloat16)
SMP_KERNELS_OF(c10::Half)
#undef SMP_KERNELS_OF

#define SMP_KERNELS_OF(T)                                                                       \
  /* Softmax statistics of logits [rows, cols], whose columns are the vocabulary entries from   \
     `begin` on. Three steps, so that tensor-parallel ranks can reduce in between.              \
     1: maximum of each row. */                                                                 \
  void row_maxima(int64_t rows, int64_t cols, const T* logits, T* maxima);                      \
  /* 2: logits become exp(logits - maximum); sums of each row; the target's logit - maximum, or \
     0 where another rank has it. */                                                            \
  void exponentials(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,          \
                    const T* maxima, T* logits, T* sums, T* target_logits);                     \
  /* 3: exponentials become scale * (softmax - one_hot(target)), zeros where the target is      \
     kNoTarget. */                                                                              \
  void softmax_gradient(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,      \
                        const T* sums, T scale, T* exponentials);

SMP_KERNELS_OF(float)
SMP_KERNELS_OF(double)
#undef SMP_KERNELS_OF

}  // namespace smp::kernels
