#pragma once

#include "kernels/attention_shape.h"
#include "kernels/wide.h"

// Attention over rows of [q heads] and rows of [k heads | v heads]. In self-attention they are side
// by side in one matrix, as the combined projection writes them; in cross-attention they are in two
// matrices. The projection's bias, the norms of queries and keys and the rotary embedding are
// applied while a head is copied to a small contiguous buffer. The gradients overwrite the rows.
// The loops take a block of queries with all its keys, so a row's softmax is complete at once. Keys
// above the causal diagonal, or before all windows of a block, are skipped. bf16 and fp16 heads are
// widened to fp32 by the copy.
namespace smp::kernels {

// A call works on a part of the pairs of a sample and a key/value head, sample * kv_heads + head.
// Parts may run side by side, each with a scratch of its own, but for a backward with norms of
// heads, relative positions or sinks, whose gradients all pairs add to.
struct AttentionPart {
  int64_t begin = 0, end = 0;
};
constexpr AttentionPart all_pairs(const AttentionShape& shape) {
  return {0, shape.batch * shape.kv_heads};
}

#define SMP_ATTENTION_OF(T)                                                                        \
  /* Writes output [b * s, heads * value_width] and the logarithm of each softmax's denominator,   \
     [b, heads, s]. */                                                                             \
  void attention_forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,   \
                         const AttentionRows<const T>& rows, const AttentionPart& part, T* output, \
                         Wide<T>* log_sums, Wide<T>* scratch);                                     \
  /* The rows become their own gradients. */                                                       \
  void attention_backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,  \
                          const AttentionRows<T>& rows, const AttentionPart& part,                 \
                          const T* output, const T* output_gradient, const Wide<T>* log_sums,      \
                          Wide<T>* scratch);

SMP_ATTENTION_OF(float)
SMP_ATTENTION_OF(double)
SMP_ATTENTION_OF(c10::BFloat16)
SMP_ATTENTION_OF(c10::Half)
#undef SMP_ATTENTION_OF

}  // namespace smp::kernels
