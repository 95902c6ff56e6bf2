#pragma once

#include "kernels/attention.h"

// Causal self-attention where the ranks of a ring have two slices of each sample (TokenSlices), and
// see the keys and values of all. A rank's keys and values are a block: its prepared keys, with
// bias, norm and rotation, and its values with bias. The blocks go round. A rank attends its own
// queries to its own block first, which starts the results, then to each of the others, whose
// softmax is joined by the logarithms of the sums (Liu et al. 2023, arXiv:2310.01889). Backward the
// blocks go round once more, and their gradients with them.
//
// n = shape.sequence is the number of a sample's tokens that a rank has, shape.slices says which.
// shape.keys, the tokens of the whole sample, is not read. Rows are packed, [q heads | k heads | v
// heads]; shape.documents has the positions in the whole sample, [batch, n]. There are no relative
// positions. Dropout draws the masks of undivided attention, so shape.dropout.first_row is 0.
//
// Parts (AttentionPart) may run side by side, each with a scratch of its own
// (ring_attention_forward_scratch() elements for keys and forward, else
// ring_attention_backward_scratch()), but for backward over the own block with sinks, and for
// turning back with norms of heads, whose gradients all pairs add to.
namespace smp::kernels {

template <typename T>
struct RingBlock {
  const T* rows = nullptr;    // [b * n, k heads | v heads], kv_cols() each
  model::TokenSlices slices;  // its owner's
  bool is_own = false;        // this rank's: the first, and the one whose softmax has the sinks
};

// What a rank's queries make of the blocks so far.
template <typename C>
struct RingResults {
  C* output = nullptr;    // [b * n, heads * value_width], normalised
  C* log_sums = nullptr;  // of the softmax's denominators, [b, heads, n]
};

// Gradients that ring_attention_backward() adds to.
template <typename C>
struct RingGradients {
  C* queries = nullptr;  // of the prepared queries, [b * n, heads * head_dim]
  C* block = nullptr;    // of the block's rows
};

#define SMP_RING_ATTENTION_OF(T)                                                                   \
  /* Writes this rank's block [b * n, kv_cols()]. */                                               \
  void ring_attention_keys(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, \
                           const T* packed, const AttentionPart& part, T* block,                   \
                           Wide<T>* scratch);                                                      \
  /* Starts the results with the own block, and joins each other to them. */                       \
  void ring_attention_forward(const AttentionShape& shape,                                         \
                              const AttentionParameters<Wide<T>>& given, const T* packed,          \
                              const RingBlock<T>& block, const AttentionPart& part,                \
                              const RingResults<Wide<T>>& results, Wide<T>* scratch);              \
  /* `output` and its gradient [b * n, heads * value_width], and log_sums, are those of all        \
     blocks. */                                                                                    \
  void ring_attention_backward(const AttentionShape& shape,                                        \
                               const AttentionParameters<Wide<T>>& given, const T* packed,         \
                               const RingBlock<T>& block, const AttentionPart& part,               \
                               const T* output, const T* output_gradient, const Wide<T>* log_sums, \
                               const RingGradients<Wide<T>>& gradients, Wide<T>* scratch);         \
  /* The packed rows become their own gradients: `gradients` of this rank's queries and block,     \
     of all calls of all ranks, back through rotation and norms. */                                \
  void ring_attention_turn_back(                                                                   \
      const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, T* packed,           \
      const RingGradients<const Wide<T>>& gradients, const AttentionPart& part, Wide<T>* scratch);

SMP_RING_ATTENTION_OF(float)
SMP_RING_ATTENTION_OF(double)
SMP_RING_ATTENTION_OF(c10::BFloat16)
SMP_RING_ATTENTION_OF(c10::Half)
#undef SMP_RING_ATTENTION_OF

// The shape of a call's kernels: its keys are those of one block.
inline AttentionShape ring_block_shape(AttentionShape shape) {
  shape.keys = shape.sequence;
  return shape;
}

}  // namespace smp::kernels
