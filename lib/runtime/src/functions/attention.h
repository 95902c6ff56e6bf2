#pragma once

#include <cstdint>

#include "functions/wide.h"

// Causal attention over packed rows [q heads | k heads | v heads], as the combined projection
// leaves them: its bias, the norms of queries and keys and the rotary embedding are applied while a
// head is copied to a small contiguous buffer, and the gradients overwrite the packed rows. A block
// of queries at a time meets all its keys, so that a row's softmax is complete at once; the blocks
// above the diagonal are skipped. Of bf16 and fp16 a head is widened to fp32 as it is copied.
namespace smp {

struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;     // of this rank
  int64_t kv_heads = 0;  // of this rank; heads is a multiple
  int64_t head_dim = 0;
  double rope_theta = 0;        // 0 = no rotary embedding
  bool has_head_norms = false;  // of queries and keys, before they are rotated
  bool centered_norms = false;  // LayerNorm
  double norm_epsilon = 0;

  int64_t packed_cols() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t output_cols() const { return heads * head_dim; }
  int64_t log_sums() const { return batch * heads * sequence; }
  // Elements of the scratch buffer that a call needs; of fp32 where the tensors are `narrow`.
  int64_t forward_scratch(bool narrow) const;
  int64_t backward_scratch(bool narrow) const;
};

// Norm of each head's row; bias of a LayerNorm alone. The gradients are added to.
template <typename C>
struct HeadNorm {
  const C* weight = nullptr;  // [head_dim]
  const C* bias = nullptr;
  C* weight_gradient = nullptr;
  C* bias_gradient = nullptr;
};

template <typename C>
struct AttentionParameters {
  const C* bias = nullptr;  // [packed_cols] of the projection; null where there is none
  HeadNorm<C> q_norm, k_norm;
};

#define SMP_ATTENTION_OF(T)                                                                       \
  /* packed [b * s, packed_cols]; writes output [b * s, heads * head_dim] and the logarithm of    \
     each softmax's denominator, [b, heads, s]. */                                                \
  void attention_forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,  \
                         const T* packed, T* output, Wide<T>* log_sums, Wide<T>* scratch);        \
  /* packed becomes its own gradient. */                                                          \
  void attention_backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, \
                          T* packed, const T* output, const T* output_gradient,                   \
                          const Wide<T>* log_sums, Wide<T>* scratch);

SMP_ATTENTION_OF(float)
SMP_ATTENTION_OF(double)
SMP_ATTENTION_OF(c10::BFloat16)
SMP_ATTENTION_OF(c10::Half)
#undef SMP_ATTENTION_OF

}  // namespace smp
