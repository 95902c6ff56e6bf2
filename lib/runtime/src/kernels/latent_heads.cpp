#include "kernels/latent_heads.h"

#include <algorithm>

#include "kernels/wide.h"

namespace smp::kernels {
namespace {

// Evens, then odds.
template <typename T>
void part_pairs(int64_t count, const T* from, T* to) {
  const int64_t half = count / 2;
  for (int64_t i = 0; i < half; ++i) {
    to[i] = from[2 * i];
    to[half + i] = from[2 * i + 1];
  }
}

template <typename T>
void join_pairs(int64_t count, const T* from, T* to) {
  const int64_t half = count / 2;
  for (int64_t i = 0; i < half; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = from[half + i];
  }
}

template <typename T>
void forward(const program::LatentAttributes& w, int64_t rows, const T* q, const T* kv,
             const T* k_rotary, T* packed) {
  for (int64_t r = 0; r < rows; ++r, k_rotary += w.rotary) {
    T* queries = packed;
    T* keys = queries + w.heads * w.head_dim();
    T* values = keys + w.heads * w.head_dim();
    for (int64_t head = 0; head < w.heads; ++head) {
      std::copy_n(q, w.plain, queries + w.rotary);
      part_pairs(w.rotary, q + w.plain, queries);
      part_pairs(w.rotary, k_rotary, keys);
      std::copy_n(kv, w.plain, keys + w.rotary);
      std::copy_n(kv + w.plain, w.value, values);
      q += w.head_dim();
      kv += w.plain + w.value;
      queries += w.head_dim();
      keys += w.head_dim();
      values += w.value;
    }
    packed = values;
  }
}

template <typename T>
void backward(const program::LatentAttributes& w, int64_t rows, const T* packed, T* q, T* kv,
              T* k_rotary) {
  const int64_t half = w.rotary / 2;
  for (int64_t r = 0; r < rows; ++r, k_rotary += w.rotary) {
    const T* queries = packed;
    const T* const first_key = queries + w.heads * w.head_dim();
    const T* keys = first_key;
    const T* values = keys + w.heads * w.head_dim();
    for (int64_t head = 0; head < w.heads; ++head) {
      std::copy_n(queries + w.rotary, w.plain, q);
      join_pairs(w.rotary, queries, q + w.plain);
      std::copy_n(keys + w.rotary, w.plain, kv);
      std::copy_n(values, w.value, kv + w.plain);
      q += w.head_dim();
      kv += w.plain + w.value;
      queries += w.head_dim();
      keys += w.head_dim();
      values += w.value;
    }
    for (int64_t i = 0; i < w.rotary; ++i) {
      Wide<T> sum = 0;
      for (int64_t head = 0; head < w.heads; ++head) {
        sum += static_cast<Wide<T>>(first_key[head * w.head_dim() + i]);
      }
      k_rotary[i < half ? 2 * i : 2 * (i - half) + 1] = static_cast<T>(sum);
    }
    packed = values;
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                  \
  void latent_heads(const program::LatentAttributes& widths, int64_t rows, const T* q, \
                    const T* kv, const T* k_rotary, T* packed) {                       \
    forward(widths, rows, q, kv, k_rotary, packed);                                    \
  }                                                                                    \
  void latent_heads_backward(const program::LatentAttributes& widths, int64_t rows,    \
                             const T* packed, T* q, T* kv, T* k_rotary) {              \
    backward(widths, rows, packed, q, kv, k_rotary);                                   \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp::kernels
