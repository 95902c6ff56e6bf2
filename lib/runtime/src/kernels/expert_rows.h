#pragma once

#include "kernels/kernels.h"
#include "smp/plan/program/attributes.h"

// The CPU's loops of a mixture of experts that are no products, for one row of fp32 or fp64.
namespace smp::kernels {

// The gradients of a router's losses, for one token.
template <typename T>
struct RouterLosses {
  const T* balance = nullptr;  // by each share of an expert in the sum of the token's probabilities
  T z = 0;                     // by the logsumexp of the scores
};

#define SMP_EXPERT_ROWS_OF(T)                                                                      \
  /* y = weight * activation(gate) * up, or without a gate weight * activation(up). With a limit   \
     or an offset: of gate and up as ActivationAttributes says. */                                 \
  void expert_row_forward(const program::ActivationAttributes& activation, int64_t cols, T weight, \
                          const T* gate, const T* up, T* y);                                       \
  /* On entry as in forward, and dy. On exit the gradients of gate and up in their place, and y    \
     in that of dy. Returns the gradient of the weight. */                                         \
  T expert_row_backward(const program::ActivationAttributes& activation, int64_t cols, T weight,   \
                        T* gate, T* up, T* dy);                                                    \
  /* The experts of a token by their scores [experts], which become probabilities, and their       \
     weights; best first, of equal ones the first. `bias` [experts] is added to the probabilities  \
     that choose, and to nothing else; null: there is none. */                                     \
  void choose_experts(const program::RouterAttributes& router, const T* bias, T* scores,           \
                      int32_t* chosen, T* weights);                                                \
  /* The logarithm of the sum of the exponentials. */                                              \
  T log_sum_of(int64_t experts, const T* scores);                                                  \
  /* Of the choices of `tokens` tokens each expert takes those with the largest weights, the first \
     of equal ones, up to its capacity. The others become ~expert with weight 0. */                \
  void drop_beyond_capacity(const program::RouterAttributes& router, int64_t tokens,               \
                            int32_t* chosen, T* weights);                                          \
  /* The probabilities become the gradients of the scores. `losses`: what the router's own losses  \
     add. */                                                                                       \
  void choose_experts_backward(const program::RouterAttributes& router, T* probabilities,          \
                               const int32_t* chosen, const T* weights, const T* d_weights,        \
                               const RouterLosses<T>& losses);

SMP_EXPERT_ROWS_OF(float)
SMP_EXPERT_ROWS_OF(double)
#undef SMP_EXPERT_ROWS_OF

}  // namespace smp::kernels
