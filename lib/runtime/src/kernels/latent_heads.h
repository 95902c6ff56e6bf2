#pragma once

#include <cstdint>

#include "smp/plan/program/attributes.h"

namespace c10 {
struct BFloat16;
struct Half;
}  // namespace c10

// The rows of latent attention, put together for attention.h and taken apart again.
namespace smp::kernels {

#define SMP_LATENT_HEADS_OF(T)                                                                \
  /* `rows` rows of q [heads x (plain | rotary)], kv [heads x (plain | value)] and k_rotary   \
     [rotary] -> packed [heads x head_dim | heads x head_dim | heads x value]. A head has its \
     rotary elements first, the even ones before the odd ones. */                             \
  void latent_heads(const program::LatentAttributes& widths, int64_t rows, const T* q,        \
                    const T* kv, const T* k_rotary, T* packed);                               \
  /* The way back, of gradients; those of k_rotary are sums over the heads. */                \
  void latent_heads_backward(const program::LatentAttributes& widths, int64_t rows,           \
                             const T* packed, T* q, T* kv, T* k_rotary);

SMP_LATENT_HEADS_OF(float)
SMP_LATENT_HEADS_OF(double)
SMP_LATENT_HEADS_OF(c10::BFloat16)
SMP_LATENT_HEADS_OF(c10::Half)
#undef SMP_LATENT_HEADS_OF

}  // namespace smp::kernels
