#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/dropout.h"
#include "kernels/host_device.h"
#include "smp/plan/spec/job_spec.h"

// The sizes, parameters and rows of a call of attention (attention.h).
namespace smp::kernels {

// Rotary embedding: the elements of a head that rotate with its position, and their frequencies.
struct RotaryShape {
  int64_t dim = 0;  // the first elements of a head; 0 = none
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;  // none, linear or llama3
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_positions = 8192;

  // Of a pair of elements, in radians a position. transformers' modeling_rope_utils.py:
  // _compute_linear_scaling_rope_parameters and _compute_llama3_parameters.
  SMP_HOST_DEVICE double frequency(int64_t pair) const {
    const double plain =
        std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
    if (scaling == RopeScaling::kNone) return plain;
    if (scaling == RopeScaling::kLinear) return plain / factor;
    // How often the wave fits into the sequences of before.
    const double waves = original_positions * plain / 6.283185307179586476925286766559;
    if (waves < low_freq_factor) return plain / factor;
    if (waves > high_freq_factor) return plain;
    const double share = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor);
    return (1 - share) * plain / factor + share * plain;
  }
};

struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;  // queries of a sample
  int64_t keys = 0;      // keys of a sample; equal to `sequence` in self-attention
  bool causal = true;    // a query sees the keys up to its own position
  int64_t window = 0;    // if causal, a query sees only the last `window` of them; 0 = all
  int64_t heads = 0;     // of this rank
  int64_t kv_heads = 0;  // of this rank; heads is a multiple
  int64_t head_dim = 0;
  double scale = 0;              // of the scores
  int64_t relative_buckets = 0;  // 0 = no relative positions (relative_positions.h)
  RotaryShape rotary;
  bool has_head_norms = false;  // of queries and keys, before they are rotated
  bool centered_norms = false;  // LayerNorm
  double norm_epsilon = 0;
  // For each query the position in its sample of its document's first token, [batch, sequence]. The
  // query sees no key before it, and positions count from it. Only for causal self-attention. Null:
  // a sample is one document. One copy is on the device, one on the host.
  const int64_t* documents = nullptr;
  const int64_t* documents_on_host = nullptr;
  Dropout dropout;         // of the softmax weights: rows are queries, columns keys
  int64_t first_head = 0;  // of this rank, among those of all

  constexpr int64_t query_cols() const { return heads * head_dim; }
  constexpr int64_t kv_cols() const { return 2 * kv_heads * head_dim; }
  constexpr int64_t packed_cols() const { return query_cols() + kv_cols(); }
  constexpr int64_t longer() const { return std::max(sequence, keys); }
  // Of a key and a query.
  constexpr int64_t distances() const { return sequence + keys - 1; }
  constexpr int64_t output_cols() const { return heads * head_dim; }
  constexpr int64_t log_sums() const { return batch * heads * sequence; }
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
  const C* relative = nullptr;     // [relative_buckets, heads]
  C* relative_gradient = nullptr;  // added to
};

// Row r of sample b begins at queries + (b * sequence + r) * query_stride, and keys likewise.
template <typename T>
struct AttentionRows {
  T* queries = nullptr;  // [q heads]
  int64_t query_stride = 0;
  T* keys = nullptr;  // [k heads | v heads]
  int64_t key_stride = 0;
};
// Of rows [q heads | k heads | v heads].
template <typename T>
AttentionRows<T> packed_rows(const AttentionShape& shape, T* packed) {
  const int64_t cols = shape.packed_cols();
  return {packed, cols, packed + shape.query_cols(), cols};
}

}  // namespace smp::kernels
