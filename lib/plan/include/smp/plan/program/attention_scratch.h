#pragma once

#include <cstdint>

#include "smp/plan/program/operation.h"

// Elements of the scratch buffer of one call of attention, which lib/runtime allocates; of fp32
// where the tensors are `narrow`, of 16 bits. A head at a time is copied: q, k and v, and backward
// the gradient of its output. A copy is [s, head_dim], of values [s, value_width], or transposed
// with padded rows. Beside the copies lie the rotary table and the scores of some queries.
namespace smp::program {

// Queries whose scores the backward holds at once, and the forward.
inline constexpr int64_t kAttentionQueryBlock = 64;
inline constexpr int64_t kAttentionStrip = 8;
// Rows of scores and of transposed heads are padded to a multiple of this.
inline constexpr int64_t kAttentionRowMultiple = 32;
// Elements that a product reads behind its end, and ignores.
inline constexpr int64_t kAttentionOverread = 16;

int64_t attention_forward_scratch(const AttentionAttributes& attention, bool narrow);
int64_t attention_backward_scratch(const AttentionAttributes& attention, bool narrow);

// The same of a call of ring attention, whose keys are those of one rank, as many as its queries.
// The forward's buffer is enough for preparing keys, the backward's for turning gradients back.
int64_t ring_attention_forward_scratch(const AttentionAttributes& attention);
int64_t ring_attention_backward_scratch(const AttentionAttributes& attention, bool narrow);

}  // namespace smp::program
