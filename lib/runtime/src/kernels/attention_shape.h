#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/dropout.h"
#include "kernels/host_device.h"
#include "smp/plan/program/attributes.h"

// The sizes, parameters and rows of a call of attention (attention.h).
namespace smp::kernels {

// The pair that turns `rotations` times over the original positions.
SMP_HOST_DEVICE double pair_of_rotations(const program::RotaryAttributes& rotary,
                                         double rotations) {
  constexpr double kTurn = 6.283185307179586476925286766559;
  return static_cast<double>(rotary.dim) *
         std::log(rotary.original_positions / (rotations * kTurn)) / (2 * std::log(rotary.theta));
}

// Yarn: pairs up to the one of beta_fast keep their frequency, those from the one of beta_slow on
// are stretched, and between them the share grows evenly. The two ends are whole pairs, or are not.
SMP_HOST_DEVICE double yarn_frequency(const program::RotaryAttributes& rotary, int64_t pair,
                                      double plain) {
  const double fast_pair = pair_of_rotations(rotary, rotary.beta_fast);
  const double slow_pair = pair_of_rotations(rotary, rotary.beta_slow);
  const double fast = rotary.truncates ? std::floor(fast_pair) : fast_pair;
  const double slow = rotary.truncates ? std::ceil(slow_pair) : slow_pair;
  const double first = fast > 0 ? fast : 0;
  const double most = static_cast<double>(rotary.dim - 1);
  double last = slow < most ? slow : most;
  if (first == last) last += 0.001;
  const double at = (static_cast<double>(pair) - first) / (last - first);
  const double share = at < 0 ? 0 : at > 1 ? 1 : at;
  return share * plain / rotary.factor + (1 - share) * plain;
}

// The frequency of a pair of elements that rotate, in radians a position. transformers'
// modeling_rope_utils.py: _compute_linear_scaling_rope_parameters, _compute_yarn_parameters and
// _compute_llama3_parameters.
SMP_HOST_DEVICE double rotary_frequency(const program::RotaryAttributes& rotary, int64_t pair) {
  const double plain =
      std::pow(rotary.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary.dim));
  if (rotary.scaling == RopeScaling::kNone) return plain;
  if (rotary.scaling == RopeScaling::kLinear) return plain / rotary.factor;
  if (rotary.scaling == RopeScaling::kLongRope) {
    return plain / static_cast<double>(rotary.pair_factors[pair]);
  }
  if (rotary.scaling == RopeScaling::kYarn) return yarn_frequency(rotary, pair, plain);
  // How often the wave fits into the sequences of before.
  const double waves = rotary.original_positions * plain / 6.283185307179586476925286766559;
  if (waves < rotary.low_freq_factor) return plain / rotary.factor;
  if (waves > rotary.high_freq_factor) return plain;
  const double share =
      (waves - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor);
  return (1 - share) * plain / rotary.factor + share * plain;
}

// The attributes of the operation, and what a call adds.
struct AttentionShape : program::AttentionAttributes {
  // For each query the position in its sample of its document's first token, [batch, sequence]. The
  // query sees no key before it, and positions count from it. Only for causal self-attention. Null:
  // a sample is one document. One copy is on the device, one on the host.
  const int64_t* documents = nullptr;
  const int64_t* documents_on_host = nullptr;
  Dropout dropout;  // of the softmax weights: rows are queries, columns keys

  constexpr int64_t query_cols() const { return heads * head_dim; }
  constexpr int64_t key_cols() const { return kv_heads * head_dim; }
  constexpr int64_t kv_cols() const { return key_cols() + kv_heads * value_width(); }
  constexpr int64_t packed_cols() const { return query_cols() + kv_cols(); }
  constexpr int64_t longer() const { return std::max(sequence, keys); }
  // Of a key and a query.
  constexpr int64_t distances() const { return sequence + keys - 1; }
  constexpr int64_t output_cols() const { return heads * value_width(); }
  constexpr int64_t log_sums() const { return batch * heads * sequence; }
};

// The documents of a sample, by query; null: it is one.
inline const int64_t* documents_of(const AttentionShape& shape, int64_t sample) {
  return shape.documents != nullptr ? shape.documents + sample * shape.sequence : nullptr;
}

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
  const C* sinks = nullptr;        // [heads]; null where there are none
  C* sinks_gradient = nullptr;     // added to
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
