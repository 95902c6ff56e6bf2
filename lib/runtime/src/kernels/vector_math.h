#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

// Scalar functions that the compiler can turn into vector code inside a loop. fp32 versions are
// exact to 2 ulp; fp64 versions are the standard library's.
namespace smp::kernels {

// Cloned per instruction set; the loader picks one. The body must be inlined into the clone.
#define SMP_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define SMP_INLINE SMP_HOST_DEVICE

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

// The normal distribution's integral up to x, given e^(-x^2 / 2). fp32: e^(z^2) erfc(z) as a
// polynomial of 1 / (1 + 0.33 z), the form of Abramowitz and Stegun 7.1.26, fitted to 9.4e-8 of its
// value over 0 <= z <= 10, so that the tail below zero keeps its digits.
SMP_INLINE float vector_normal_integral(float x, float bell) {
  constexpr float kHalfRoot = 0.70710678118654752f;  // sqrt(1/2)
  const float t = 1.0f / (1.0f + 0.33f * kHalfRoot * std::fabs(x));
  float p = -0.13534617f;
  p = p * t + 0.46023939f;
  p = p * t - 0.35115412f;
  p = p * t + 0.40850457f;
  p = p * t + 0.04721791f;
  p = p * t + 0.20122483f;
  p = p * t + 0.18295577f;
  p = p * t + 0.18635782f;
  const float tail = 0.5f * bell * p * t;
  return x > 0.0f ? 1.0f - tail : tail;
}
SMP_INLINE double vector_normal_integral(double x, double) {
  return 0.5 * std::erfc(x * -0.70710678118654752440);
}

template <typename T>
SMP_INLINE T vector_sigmoid(T x) {
  return T(1) / (T(1) + vector_exp(-x));
}

}  // namespace smp::kernels
