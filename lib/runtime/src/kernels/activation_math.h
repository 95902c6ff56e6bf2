#pragma once

#include "kernels/kernels.h"
#include "kernels/vector_math.h"

// What an activation makes of one element, and its derivative there.
namespace smp::kernels {

// gelu_tanh(u) = u/2 * (1 + tanh(z/2)) = u * sigmoid(z) with z = 2 sqrt(2/pi) (u + 0.044715 u^3):
// the same function (Hendrycks and Gimpel 2016) without the cancellation of 1 + tanh.
template <typename T>
inline constexpr T kGeluScale = T(1.5957691216057307117597842397375);  // 2 sqrt(2/pi)
template <typename T>
inline constexpr T kGeluCubic = T(0.044715);

template <typename T>
SMP_HOST_DEVICE T gelu_sigmoid(T u) {
  return vector_sigmoid(kGeluScale<T> * u * (T(1) + kGeluCubic<T> * u * u));
}

// The other form of Hendrycks and Gimpel: u * sigmoid(1.702 u).
template <typename T>
inline constexpr T kGeluSigmoidScale = T(1.702);

template <typename T>
inline constexpr T kBellScale = T(0.39894228040143267793994605993438);  // 1 / sqrt(2 pi)

// A value of an activation and its derivative.
template <typename T>
struct Slope {
  T value, derivative;
};

template <ActivationKind kKind, typename T>
SMP_HOST_DEVICE T value_of(T v) {
  if constexpr (kKind == ActivationKind::kGelu) return v * gelu_sigmoid(v);
  if constexpr (kKind == ActivationKind::kGeluErf) {
    return v * vector_normal_integral(v, vector_exp(T(-0.5) * v * v));
  }
  if constexpr (kKind == ActivationKind::kGeluSigmoid) {
    return v * vector_sigmoid(kGeluSigmoidScale<T> * v);
  }
  if constexpr (kKind == ActivationKind::kSilu) return v * vector_sigmoid(v);
  if constexpr (kKind == ActivationKind::kRelu) return v > T(0) ? v : T(0);
}

template <ActivationKind kKind, typename T>
SMP_HOST_DEVICE Slope<T> slope_of(T v) {
  if constexpr (kKind == ActivationKind::kGelu) {
    const T s = gelu_sigmoid(v);
    const T slope = kGeluScale<T> * (T(1) + T(3) * kGeluCubic<T> * v * v);
    return {v * s, s + v * s * (T(1) - s) * slope};
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    const T bell = vector_exp(T(-0.5) * v * v);
    const T below = vector_normal_integral(v, bell);
    return {v * below, below + v * kBellScale<T> * bell};
  } else if constexpr (kKind == ActivationKind::kGeluSigmoid) {
    const T s = vector_sigmoid(kGeluSigmoidScale<T> * v);
    return {v * s, s + kGeluSigmoidScale<T> * v * s * (T(1) - s)};
  } else if constexpr (kKind == ActivationKind::kSilu) {
    const T s = vector_sigmoid(v);
    const T silu = v * s;
    return {silu, s + silu * (T(1) - s)};
  } else {
    return {v > T(0) ? v : T(0), v > T(0) ? T(1) : T(0)};
  }
}

}  // namespace smp::kernels
