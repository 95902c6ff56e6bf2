#pragma once

#include <cmath>

#include "cuda/block.h"
#include "kernels/attention.h"

// Unpacks heads from the rows of a projection, [tokens, heads | ...] (kernels/attention.h), to the
// layout of attention kernels, [b, heads, s, d], and packs gradients back. Unpacking applies the
// projection's bias, the norms of queries and keys and the rotary embedding. Packing is the
// backward of these steps.
namespace smp::cuda {

// The heads of the queries, the keys or the values. R: the element type of unpacked heads, T or
// wide.
template <typename T, typename R = T>
struct HeadTensor {
  R* rows = nullptr;  // [b, heads, s, d]
  int64_t heads = 0;
  int64_t dim = 0;  // d
  int64_t sequence = 0;
  int64_t stride = 0;                       // elements between two tokens in the projection's rows
  const T* bias = nullptr;                  // the projection's bias, [heads * d]; null: none
  const kernels::Wide<T>* turns = nullptr;  // from fill_turns(); null: no rotary embedding
  kernels::HeadNorm<T> norm;                // only weight and bias are used; null: no norm
  kernels::Wide<T>* stats = nullptr;        // the norm's statistics, [b, s, heads, 1 or 2]

  SMP_HOST_DEVICE bool has_norm() const { return norm.weight != nullptr; }
};

// Number of elements that fill_turns() writes.
inline int64_t turns_of(const kernels::AttentionShape& shape) {
  return shape.longer() * (shape.rotary.dim / 2) * 2;
}

// Cosines and sines of the rotary embedding's angles, [position, 2, dim / 2]. They are computed
// once for all heads, because they are computed in fp64.
template <typename Block, typename C>
SMP_HOST_DEVICE void fill_turns(const Block& block, const kernels::AttentionShape& shape,
                                C* turns) {
  const int64_t half = shape.rotary.dim / 2;
  for_each(block, shape.longer() * half, [&](int64_t i) {
    const int64_t position = i / half, pair = i % half;
    const double angle =
        static_cast<double>(position) * kernels::rotary_frequency(shape.rotary, pair);
    C* const to = turns + position * 2 * half + pair;
    to[0] = C(shape.rotary.attention_factor * std::cos(angle));
    to[half] = C(shape.rotary.attention_factor * std::sin(angle));
  });
}

// Offsets of a head's row of one token.
struct HeadPosition {
  int64_t token;     // of its first element in the projection's rows
  int64_t own;       // of its first element in HeadTensor::rows
  int64_t head;      // in the bias
  int64_t position;  // of the token in its document
};

template <typename T, typename R>
SMP_HOST_DEVICE HeadPosition place_of(const kernels::AttentionShape& shape,
                                      const HeadTensor<T, R>& tensor, int64_t token, int64_t head) {
  const int64_t d = tensor.dim;
  const int64_t sample = token / tensor.sequence, position = token % tensor.sequence;
  const int64_t row = (sample * tensor.heads + head) * tensor.sequence + position;
  const int64_t begin = shape.documents != nullptr ? shape.documents[token] : 0;
  return {token * tensor.stride + head * d, row * d, head * d, position - begin};
}

// Offsets of head row i, in the order of the projection's rows.
template <typename T, typename R>
SMP_HOST_DEVICE HeadPosition place_of(const kernels::AttentionShape& shape,
                                      const HeadTensor<T, R>& tensor, int64_t i) {
  return place_of(shape, tensor, i / tensor.heads, i % tensor.heads);
}

// Whether heads, and the two halves of their rotary part, can be read in strips.
template <typename T, typename R>
SMP_HOST_DEVICE bool are_strips(const kernels::AttentionShape& shape,
                                const HeadTensor<T, R>& tensor, const T* rows) {
  const int64_t half = tensor.turns != nullptr ? shape.rotary.dim / 2 : 0;
  return tensor.dim % StripWidth<T>() == 0 && tensor.stride % StripWidth<T>() == 0 &&
         half % StripWidth<T>() == 0 &&
         are_aligned(rows, tensor.rows, tensor.bias, tensor.turns, tensor.norm.weight,
                     tensor.norm.bias);
}

// The strip of the projection's output from element c on, plus the bias.
template <int kWidth, typename T, typename R>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> projected(Width<kWidth> width,
                                                          const HeadTensor<T, R>& tensor,
                                                          const HeadPosition& place, const T* rows,
                                                          int64_t c) {
  const T* const bias = tensor.bias != nullptr ? tensor.bias + place.head : nullptr;
  return load_with_bias(width, rows + place.token, bias, c);
}

// The strip at(c), rotated by the angles of the head's position; sign -1 rotates backwards.
template <int kWidth, typename T, typename R, typename At>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> turned(Width<kWidth> width,
                                                       const kernels::AttentionShape& shape,
                                                       const HeadTensor<T, R>& tensor,
                                                       const HeadPosition& place, int64_t c,
                                                       kernels::Wide<T> sign, const At& at) {
  auto strip = at(c);
  const int64_t half = shape.rotary.dim / 2;
  if (tensor.turns == nullptr || c >= 2 * half) return strip;
  const bool is_first = c < half;  // the first element of its rotary pair
  const auto other = at(is_first ? c + half : c - half);
  const kernels::Wide<T>* const of_position =
      tensor.turns + place.position * 2 * half + (is_first ? c : c - half);
  const auto cosines = load(width, of_position), sines = load(width, of_position + half);
  const kernels::Wide<T> sign_of_sine = is_first ? -sign : sign;
  for (int k = 0; k < kWidth; ++k) {
    strip[k] = strip[k] * cosines[k] + sign_of_sine * sines[k] * other[k];
  }
  return strip;
}

// Heads without a norm.
template <typename Block, typename T, typename R>
SMP_HOST_DEVICE void unpack_heads(const Block& block, const kernels::AttentionShape& shape,
                                  const T* rows, const HeadTensor<T, R>& tensor) {
  const int64_t d = tensor.dim;
  for_each_strip<T>(
      block, shape.batch * tensor.sequence, tensor.heads * d, are_strips(shape, tensor, rows),
      [&](auto width, int64_t token, int64_t col) {
        const int64_t head = col / d, c = col % d;
        const HeadPosition place = place_of(shape, tensor, token, head);
        const auto raw = [&](int64_t from) { return projected(width, tensor, place, rows, from); };
        store(turned(width, shape, tensor, place, c, 1, raw), tensor.rows + place.own + c);
      });
}

// Heads with a norm. One block per head and token.
template <typename Block, typename T, typename R>
SMP_HOST_DEVICE void unpack_normed_heads(Block& block, const kernels::AttentionShape& shape,
                                         const T* rows, const HeadTensor<T, R>& tensor) {
  using C = kernels::Wide<T>;
  const int64_t d = tensor.dim, count = shape.batch * tensor.sequence * tensor.heads;
  const bool aligned = are_strips(shape, tensor, rows);
  for_each_row(block, count, [&](int64_t row) {
    const HeadPosition place = place_of(shape, tensor, row);
    C mean = 0;
    if (shape.centered_norms) {
      C sum = 0;
      for_each_strip_of_row<T>(block, d, aligned, [&](auto width, int64_t c) {
        const auto raw = projected(width, tensor, place, rows, c);
        for (int k = 0; k < width; ++k) sum += raw[k];
      });
      mean = block.sum(sum) / C(d);
    }
    C squares = 0;
    for_each_strip_of_row<T>(block, d, aligned, [&](auto width, int64_t c) {
      const auto raw = projected(width, tensor, place, rows, c);
      for (int k = 0; k < width; ++k) squares += (raw[k] - mean) * (raw[k] - mean);
    });
    const C rstd = C(1) / std::sqrt(block.sum(squares) / C(d) + C(shape.norm_epsilon));
    if (block.thread() == 0) {
      C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
      if (shape.centered_norms) stats[0] = mean;
      stats[shape.centered_norms ? 1 : 0] = rstd;
    }
    for_each_strip_of_row<T>(block, d, aligned, [&](auto width, int64_t c) {
      const auto normal = [&](int64_t from) {
        auto strip = projected(width, tensor, place, rows, from);
        const auto scale = load(width, tensor.norm.weight + from);
        const auto shift = load_or_zeros(width, tensor.norm.bias, from);
        for (int k = 0; k < width; ++k) strip[k] = (strip[k] - mean) * rstd * scale[k] + shift[k];
        return strip;
      };
      store(turned(width, shape, tensor, place, c, 1, normal), tensor.rows + place.own + c);
    });
  });
}

// Heads without a norm. tensor.rows holds the heads' gradients; `rows` is overwritten with the
// gradients of the projection's output.
template <typename Block, typename T, typename R>
SMP_HOST_DEVICE void pack_gradients(const Block& block, const kernels::AttentionShape& shape,
                                    const HeadTensor<T, R>& tensor, T* rows) {
  const int64_t d = tensor.dim;
  for_each_strip<T>(block, shape.batch * tensor.sequence, tensor.heads * d,
                    are_strips(shape, tensor, rows), [&](auto width, int64_t token, int64_t col) {
                      const int64_t head = col / d, c = col % d;
                      const HeadPosition place = place_of(shape, tensor, token, head);
                      const auto given = [&](int64_t from) {
                        return load(width, tensor.rows + place.own + from);
                      };
                      store(turned(width, shape, tensor, place, c, -1, given),
                            rows + place.token + c);
                    });
}

// Heads with a norm. One block per head and token. On entry `rows` holds the projection's output,
// which the norm's backward needs. The norm's own gradients are the column sums of
// head_norm_term().
template <typename Block, typename T, typename R>
SMP_HOST_DEVICE void pack_normed_gradients(Block& block, const kernels::AttentionShape& shape,
                                           const HeadTensor<T, R>& tensor, T* rows) {
  using C = kernels::Wide<T>;
  const int64_t d = tensor.dim, count = shape.batch * tensor.sequence * tensor.heads;
  const bool aligned = are_strips(shape, tensor, rows);
  for_each_row(block, count, [&](int64_t row) {
    const HeadPosition place = place_of(shape, tensor, row);
    const C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
    const C mean = shape.centered_norms ? stats[0] : C(0);
    const C rstd = stats[shape.centered_norms ? 1 : 0];
    const auto scaled = [&](auto width, int64_t c) {
      const auto given = [&](int64_t from) { return load(width, tensor.rows + place.own + from); };
      auto strip = turned(width, shape, tensor, place, c, -1, given);
      const auto scale = load(width, tensor.norm.weight + c);
      for (int k = 0; k < width; ++k) strip[k] *= scale[k];
      return strip;
    };
    const auto centred = [&](auto width, int64_t c) {
      auto strip = projected(width, tensor, place, rows, c);
      for (int k = 0; k < width; ++k) strip[k] = (strip[k] - mean) * rstd;
      return strip;
    };
    C sum = 0, product = 0;
    for_each_strip_of_row<T>(block, d, aligned, [&](auto width, int64_t c) {
      const auto gradients = scaled(width, c), normals = centred(width, c);
      for (int k = 0; k < width; ++k) {
        sum += gradients[k];
        product += gradients[k] * normals[k];
      }
    });
    sum = shape.centered_norms ? block.sum(sum) / C(d) : C(0);
    product = block.sum(product) / C(d);
    for_each_strip_of_row<T>(block, d, aligned, [&](auto width, int64_t c) {
      auto gradients = scaled(width, c);
      const auto normals = centred(width, c);
      for (int k = 0; k < width; ++k) {
        gradients[k] = rstd * (gradients[k] - sum - normals[k] * product);
      }
      store(gradients, rows + place.token + c);
    });
  });
}

// Terms of the norm's gradients in head row `row`, before pack_normed_gradients(): dy * normal,
// whose column sums are the weight's gradient, and dy, whose column sums are the bias's gradient.
template <typename T>
struct HeadNormTerm {
  kernels::Wide<T> of_weight, of_bias;
};

template <typename T, typename R>
SMP_HOST_DEVICE HeadNormTerm<T> head_norm_term(const kernels::AttentionShape& shape, const T* rows,
                                               const HeadTensor<T, R>& tensor, int64_t row,
                                               int64_t col) {
  using C = kernels::Wide<T>;
  constexpr Width<1> kOne;
  const HeadPosition place = place_of(shape, tensor, row);
  const auto given = [&](int64_t c) { return load(kOne, tensor.rows + place.own + c); };
  const C dy = turned(kOne, shape, tensor, place, col, -1, given)[0];
  const C* const stats = tensor.stats + row * (shape.centered_norms ? 2 : 1);
  const C mean = shape.centered_norms ? stats[0] : C(0);
  const C rstd = stats[shape.centered_norms ? 1 : 0];
  return {dy * (projected(kOne, tensor, place, rows, col)[0] - mean) * rstd, dy};
}

}  // namespace smp::cuda
