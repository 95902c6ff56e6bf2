#include "kernels/wide.h"

#include <immintrin.h>

#include <bit>

#include "kernels/vector_math.h"

namespace smp::kernels {
namespace {

constexpr uint32_t kNan = 0x7fc0;  // bf16

__attribute__((target("arch=x86-64-v3"))) void widen_f16c(int64_t count, const uint16_t* from,
                                                          float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i]);
}

__attribute__((target("arch=x86-64-v3"))) void narrow_f16c(int64_t count, const float* from,
                                                           uint16_t* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  for (; i < count; ++i) to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

const bool& has_f16c() {
  static const bool has = __builtin_cpu_supports("x86-64-v3") != 0;
  return has;
}

SMP_VECTOR_CLONES void widen_bf16(int64_t count, const uint16_t* from, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{from[i]} << 16);
}

SMP_VECTOR_CLONES void narrow_bf16(int64_t count, const float* from, uint16_t* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[i] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? kNan : rounded);
  }
}

}  // namespace

void widen(int64_t count, const c10::BFloat16* from, float* to) {
  widen_bf16(count, reinterpret_cast<const uint16_t*>(from), to);
}

void narrow(int64_t count, const float* from, c10::BFloat16* to) {
  narrow_bf16(count, from, reinterpret_cast<uint16_t*>(to));
}

void widen(int64_t count, const c10::Half* from, float* to) {
  if (has_f16c()) {
    widen_f16c(count, reinterpret_cast<const uint16_t*>(from), to);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  }
}

void narrow(int64_t count, const float* from, c10::Half* to) {
  if (has_f16c()) {
    narrow_f16c(count, from, reinterpret_cast<uint16_t*>(to));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = c10::Half(from[i]);
  }
}

}  // namespace smp::kernels
