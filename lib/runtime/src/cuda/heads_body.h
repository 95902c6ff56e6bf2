#pragma once

#include <cmath>

#include "cuda/block.h"
#include "functions/attention.h"

// Heads as a projection leaves them, rows [tokens, heads | ...] (functions/attention.h), and as an
// attention kernel wants them, [b, heads, s, d]; the projection's bias, the norms of queries and
// keys and the rotary embedding are applied on the way, and undone for gradients on the way back.
namespace smp::cuda {

// The heads of the queries, the keys or the values. R: what they are unpacked to, T or wide.
template <typename T, typename R = T>
struct HeadTensor {
  R* rows = nullptr;  // [b, heads, s, d]
  int64_t heads = 0;
  int64_t sequence = 0;
  int64_t stride = 0;        // between tokens in the projection's rows
  const T* bias = nullptr;   // [heads * d] of the projection; null: none
  bool turns = false;        // by its position
  HeadNorm<T> norm;          // weight and bias alone; null: none
  Wide<T>* stats = nullptr;  // of the norm: [b, s, heads, 1 or 2]
};

// Where head row i of `tensor` lies.
struct HeadPlace {
  int64_t token;     // offset of its first element in the projection's rows
  int64_t own;       // in the tensor
  int64_t head;      // offset in the bias
  int64_t position;  // in the sequence
};

template <typename T, typename R>
SMP_ANYWHERE HeadPlace place_of(const AttentionShape& shape, const HeadTensor<T, R>& tensor,
                                int64_t i) {
  const int64_t d = shape.head_dim;
  const int64_t head = i % tensor.heads, token = i / tensor.heads;
  const int64_t sample = token / tensor.sequence, position = token % tensor.sequence;
  const int64_t row = (sample * tensor.heads + head) * tensor.sequence + position;
  return {token * tensor.stride + head * d, row * d, head * d, position};
}

// Element c of what the projection made, with its bias.
template <typename T, typename R>
SMP_ANYWHERE Wide<T> projected(const HeadTensor<T, R>& tensor, const HeadPlace& place,
                               const T* rows, int64_t c) {
  using C = Wide<T>;
  return C(rows[place.token + c]) +
         (tensor.bias != nullptr ? C(tensor.bias[place.head + c]) : C(0));
}

// Turns element c of a head by its angle at `position`; sign -1 turns it back.
template <typename C, typename At>
SMP_ANYWHERE C rotated(const AttentionShape& shape, int64_t position, int64_t c, C sign,
                       const At& at) {
  const int64_t half = shape.rotary.dim / 2;
  if (c >= 2 * half) return at(c);
  const double angle =
      static_cast<double>(position) * shape.rotary.frequency(c < half ? c : c - half);
  const C cosine = C(std::cos(angle)), sine = sign * C(std::sin(angle));
  return c < half ? at(c) * cosine - at(c + half) * sine : at(c) * cosine + at(c - half) * sine;
}

// What the norm makes of element c: of (x + bias of the projection).
template <typename T, typename R, typename At>
SMP_ANYWHERE Wide<T> normal_of(const HeadTensor<T, R>& tensor, Wide<T> mean, Wide<T> rstd,
                               int64_t c, const At& at) {
  using C = Wide<T>;
  if (tensor.norm.weight == nullptr) return at(c);
  const C shift = tensor.norm.bias != nullptr ? C(tensor.norm.bias[c]) : C(0);
  return (at(c) - mean) * rstd * C(tensor.norm.weight[c]) + shift;
}

// A block to each head's row of one token.
template <typename Block, typename T, typename R>
SMP_ANYWHERE void unpack_heads(Block& block, const AttentionShape& shape, const T* rows,
                               const HeadTensor<T, R>& tensor) {
  using C = Wide<T>;
  const int64_t d = shape.head_dim, count = shape.batch * tensor.sequence * tensor.heads;
  for_each_row(block, count, [&](int64_t row) {
    const HeadPlace place = place_of(shape, tensor, row);
    const auto raw = [&](int64_t c) { return projected(tensor, place, rows, c); };
    C mean = 0, rstd = 1;
    if (tensor.norm.weight != nullptr) {
      if (shape.centered_norms) {
        C sum = 0;
        for_each_column(block, d, [&](int64_t c) { sum += raw(c); });
        mean = block.sum(sum) / C(d);
      }
      C squares = 0;
      for_each_column(block, d, [&](int64_t c) { squares += (raw(c) - mean) * (raw(c) - mean); });
      rstd = C(1) / std::sqrt(block.sum(squares) / C(d) + C(shape.norm_epsilon));
      if (block.thread() == 0) {
        C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
        if (shape.centered_norms) stats[0] = mean;
        stats[shape.centered_norms ? 1 : 0] = rstd;
      }
    }
    const auto normal = [&](int64_t c) { return normal_of(tensor, mean, rstd, c, raw); };
    const bool turns = tensor.turns && shape.rotary.dim > 0;
    for_each_column(block, d, [&](int64_t c) {
      tensor.rows[place.own + c] =
          R(turns ? rotated(shape, place.position, c, C(1), normal) : normal(c));
    });
  });
}

// tensor.rows are gradients; `rows` become those of what the projection made. They are given as
// they were, since a norm's backward needs them. The norms' own gradients are column sums of
// head_norm_term().
template <typename Block, typename T, typename R>
SMP_ANYWHERE void pack_gradients(Block& block, const AttentionShape& shape,
                                 const HeadTensor<T, R>& tensor, T* rows) {
  using C = Wide<T>;
  const int64_t d = shape.head_dim, count = shape.batch * tensor.sequence * tensor.heads;
  for_each_row(block, count, [&](int64_t row) {
    const HeadPlace place = place_of(shape, tensor, row);
    T* const to = rows + place.token;
    const auto given = [&](int64_t c) { return C(tensor.rows[place.own + c]); };
    const bool turns = tensor.turns && shape.rotary.dim > 0;
    const auto straight = [&](int64_t c) {
      return turns ? rotated(shape, place.position, c, C(-1), given) : given(c);
    };
    if (tensor.norm.weight == nullptr) {
      for_each_column(block, d, [&](int64_t c) { to[c] = T(straight(c)); });
      return;
    }
    const C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
    const C mean = shape.centered_norms ? stats[0] : C(0);
    const C rstd = stats[shape.centered_norms ? 1 : 0];
    const auto centred = [&](int64_t c) {
      return (projected(tensor, place, rows, c) - mean) * rstd;
    };
    C sum = 0, product = 0;
    for_each_column(block, d, [&](int64_t c) {
      const C scaled = straight(c) * C(tensor.norm.weight[c]);
      sum += scaled;
      product += scaled * centred(c);
    });
    sum = shape.centered_norms ? block.sum(sum) / C(d) : C(0);
    product = block.sum(product) / C(d);
    for_each_column(block, d, [&](int64_t c) {
      const C scaled = straight(c) * C(tensor.norm.weight[c]);
      to[c] = T(rstd * (scaled - sum - centred(c) * product));
    });
  });
}

// Of head row `row`, before pack_gradients(): dy * normal, whose column sums are the gradient of
// the norm's weight; and dy, whose sums are its bias's.
template <typename T>
struct HeadNormTerm {
  Wide<T> of_weight, of_bias;
};

template <typename T, typename R>
SMP_ANYWHERE HeadNormTerm<T> head_norm_term(const AttentionShape& shape, const T* rows,
                                            const HeadTensor<T, R>& tensor, int64_t row,
                                            int64_t col) {
  using C = Wide<T>;
  const HeadPlace place = place_of(shape, tensor, row);
  const auto given = [&](int64_t c) { return C(tensor.rows[place.own + c]); };
  const bool turns = tensor.turns && shape.rotary.dim > 0;
  const C dy = turns ? rotated(shape, place.position, col, C(-1), given) : given(col);
  const C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
  const C mean = shape.centered_norms ? stats[0] : C(0);
  const C rstd = stats[shape.centered_norms ? 1 : 0];
  return {dy * (projected(tensor, place, rows, col) - mean) * rstd, dy};
}

}  // namespace smp::cuda
