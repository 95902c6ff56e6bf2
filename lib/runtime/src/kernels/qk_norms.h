#pragma once

#include "kernels/wide.h"
#include "smp/plan/program/attributes.h"

// Norms of queries and of keys over all heads, on rows [q heads | k heads | v heads] of a rank, of
// which `rows` have `cols` columns each. Of each row there are two sums, for q and for k, which the
// ranks add up before they are read.
namespace smp::kernels {

template <typename C>
struct QkWeights {
  const C *q = nullptr, *k = nullptr;              // [q_cols] and [k_cols]
  C *q_gradient = nullptr, *k_gradient = nullptr;  // added to
};

#define SMP_QK_NORMS_OF(T)                                                                        \
  void qk_squares(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* x,  \
                  Wide<T>* squares);                                                              \
  /* Values are copied. */                                                                        \
  void qk_norm(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* x,     \
               const Wide<T>* squares, const QkWeights<Wide<T>>& weights, T* y);                  \
  /* The sums of dy * weight * x / rms; adds to the gradients of the weights. */                  \
  void qk_norm_sums(const program::QkNormAttributes& norm, int64_t rows, int64_t cols,            \
                    const T* dy, const T* x, const Wide<T>* squares,                              \
                    const QkWeights<Wide<T>>& weights, Wide<T>* sums);                            \
  /* dy becomes the gradient of x. */                                                             \
  void qk_norm_backward(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, T* dy, \
                        const T* x, const Wide<T>* squares, const Wide<T>* sums,                  \
                        const QkWeights<Wide<T>>& weights);

SMP_QK_NORMS_OF(float)
SMP_QK_NORMS_OF(double)
SMP_QK_NORMS_OF(c10::BFloat16)
SMP_QK_NORMS_OF(c10::Half)
#undef SMP_QK_NORMS_OF

}  // namespace smp::kernels
