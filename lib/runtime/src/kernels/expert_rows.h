#pragma once

#include "kernels/kernels.h"
#include "smp/plan/program/attributes.h"

// The arithmetic of a mixture of experts that is no product, for one row of fp32 or fp64.
namespace smp::kernels {

#define SMP_EXPERT_ROWS_OF(T)                                                                      \
  /* y = weight * activation(gate) * up, or without a gate weight * activation(up). */             \
  void expert_row_forward(ActivationKind kind, int64_t cols, T weight, const T* gate, const T* up, \
                          T* y);                                                                   \
  /* On entry as in forward, and dy. On exit the gradients of gate and up in their place, and y    \
     in that of dy. Returns the gradient of the weight. */                                         \
  T expert_row_backward(ActivationKind kind, int64_t cols, T weight, T* gate, T* up, T* dy);       \
  /* The experts of a token by their scores [experts], which become probabilities, and their       \
     weights; best first, of equal ones the first. */                                              \
  void choose_experts(const program::RouterAttributes& router, T* scores, int32_t* chosen,         \
                      T* weights);                                                                 \
  /* The probabilities become the gradients of the scores. */                                      \
  void choose_experts_backward(const program::RouterAttributes& router, T* probabilities,          \
                               const int32_t* chosen, const T* weights, const T* d_weights);

SMP_EXPERT_ROWS_OF(float)
SMP_EXPERT_ROWS_OF(double)
#undef SMP_EXPERT_ROWS_OF

}  // namespace smp::kernels
