#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "anywhere.h"

// Scalar functions that the compiler can turn into vector code inside a loop. fp32 versions are
// exact to 2 ulp; fp64 versions are the standard library's.
namespace smp {

// Cloned per instruction set; the loader picks one. The body must be inlined into the clone.
#define SMP_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define SMP_INLINE SMP_ANYWHERE

// e^x by Cody-Waite reduction and the Cephes polynomial; x is clamped to the range of normal
// results.
SMP_INLINE float vector_exp(float x) {
  constexpr float kLowest = -87.3f, kHighest = 88.37f;
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = x < kLowest ? kLowest : x;
  x = x > kHighest ? kHighest : x;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  float r = x - n * kLn2High;
  r = r - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}
SMP_INLINE double vector_exp(double x) { return std::exp(x); }

template <typename T>
SMP_INLINE T vector_sigmoid(T x) {
  return T(1) / (T(1) + vector_exp(-x));
}

}  // namespace smp
