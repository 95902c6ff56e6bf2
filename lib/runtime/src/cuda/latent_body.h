#pragma once

#include "cuda/block.h"
#include "smp/plan/program/attributes.h"

// The rows of latent attention, put together for attention and taken apart again
// (kernels/latent_heads.h has their layout).
namespace smp::cuda {

// Where element c of a head's query or key is in its source: in the part without position, or in
// the rotary part, whose even elements come before the odd ones.
SMP_HOST_DEVICE int64_t rotary_source(const program::LatentAttributes& widths, int64_t c) {
  const int64_t half = widths.rotary / 2;
  return c < half ? 2 * c : 2 * (c - half) + 1;
}

// One thread per element of `packed`.
template <typename Block, typename T>
SMP_HOST_DEVICE void join_latent_heads(const Block& block, const program::LatentAttributes& w,
                                       int64_t rows, const T* q, const T* kv, const T* k_rotary,
                                       T* packed) {
  const int64_t d = w.head_dim(), of_keys = w.heads * d, cols = 2 * of_keys + w.heads * w.value;
  const int64_t kv_width = w.plain + w.value;
  for_each(block, rows * cols, [&](int64_t i) {
    const int64_t row = i / cols, col = i % cols;
    const T* const from_kv = kv + row * w.heads * kv_width;
    if (col >= 2 * of_keys) {
      const int64_t head = (col - 2 * of_keys) / w.value, c = (col - 2 * of_keys) % w.value;
      packed[i] = from_kv[head * kv_width + w.plain + c];
      return;
    }
    const bool is_key = col >= of_keys;
    const int64_t head = col % of_keys / d, c = col % of_keys % d;
    if (c >= w.rotary) {
      packed[i] = is_key ? from_kv[head * kv_width + c - w.rotary]
                         : q[row * of_keys + head * d + c - w.rotary];
    } else {
      const int64_t source = rotary_source(w, c);
      packed[i] = is_key ? k_rotary[row * w.rotary + source]
                         : q[row * of_keys + head * d + w.plain + source];
    }
  });
}

// One thread per element of the rows of q, kv and k_rotary together; the last are sums over heads.
template <typename Block, typename T>
SMP_HOST_DEVICE void part_latent_heads(const Block& block, const program::LatentAttributes& w,
                                       int64_t rows, const T* packed, T* q, T* kv, T* k_rotary) {
  const int64_t d = w.head_dim(), of_keys = w.heads * d, half = w.rotary / 2;
  const int64_t kv_width = w.plain + w.value, of_kv = w.heads * kv_width;
  const int64_t cols = of_keys + of_kv + w.rotary, packed_cols = 2 * of_keys + w.heads * w.value;
  // Of an element of a rotary part.
  const auto place_of = [&](int64_t source) {
    return source % 2 == 0 ? source / 2 : half + source / 2;
  };
  for_each(block, rows * cols, [&](int64_t i) {
    const int64_t row = i / cols, col = i % cols;
    const T* const from = packed + row * packed_cols;
    if (col < of_keys) {
      const int64_t head = col / d, c = col % d;
      const int64_t place = c < w.plain ? w.rotary + c : place_of(c - w.plain);
      q[row * of_keys + col] = from[head * d + place];
    } else if (col < of_keys + of_kv) {
      const int64_t head = (col - of_keys) / kv_width, c = (col - of_keys) % kv_width;
      kv[row * of_kv + col - of_keys] = c < w.plain
                                            ? from[of_keys + head * d + w.rotary + c]
                                            : from[2 * of_keys + head * w.value + c - w.plain];
    } else {
      const int64_t source = col - of_keys - of_kv, place = place_of(source);
      kernels::Wide<T> sum = 0;
      for (int64_t head = 0; head < w.heads; ++head) {
        sum += kernels::Wide<T>(from[of_keys + head * d + place]);
      }
      k_rotary[row * w.rotary + source] = T(sum);
    }
  });
}

}  // namespace smp::cuda
