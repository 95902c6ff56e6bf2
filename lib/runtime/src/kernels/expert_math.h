#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/activation_math.h"
#include "kernels/host_device.h"
#include "smp/plan/program/attributes.h"

// The arithmetic of a mixture of experts that CPUs and GPUs share, for one element.
namespace smp::kernels {

// The expert of a choice, whether or not it takes the token (kRouteRules).
SMP_HOST_DEVICE int32_t expert_of_choice(int32_t choice) { return choice < 0 ? ~choice : choice; }

// DeepSeek-V3's own, so that sigmoids that are all 0 give no division by 0.
template <typename T>
inline constexpr T kLeastSum = T(1e-20);

// The weights of rows, by place; 1 where there are none.
template <typename C>
struct RowWeights {
  const C* weights = nullptr;
  const int32_t* places = nullptr;  // null: row i has weight i

  SMP_HOST_DEVICE int64_t place(int64_t row) const { return places != nullptr ? places[row] : row; }
  SMP_HOST_DEVICE C of(int64_t row) const {
    return weights != nullptr ? weights[place(row)] : C(1);
  }
};

// The exponential of a score by its sigmoid p, up to what 1 - p can tell apart from 0.
template <typename T>
SMP_HOST_DEVICE T odds_of(T p) {
  constexpr T kLeast = std::numeric_limits<T>::epsilon();
  const T rest = T(1) - p;
  return p / (rest > kLeast ? rest : kLeast);
}

// Of a gated activation; `most` is infinite where there is no limit.
template <typename T>
struct GateLimits {
  T most, offset;

  SMP_HOST_DEVICE T gate(T value) const { return std::min(value, most); }
  SMP_HOST_DEVICE T up(T value) const { return std::max(std::min(value, most), -most) + offset; }
};
template <typename T>
GateLimits<T> limits_of(const program::ActivationAttributes& activation) {
  return {activation.limit > 0 ? T(activation.limit) : std::numeric_limits<T>::infinity(),
          T(activation.offset)};
}

// A row's element: weight * activation(gate) * up.
template <ActivationKind kKind, typename T>
SMP_HOST_DEVICE T gated_element(const GateLimits<T>& limits, T weight, T gate, T up) {
  return weight * (value_of<kKind>(limits.gate(gate)) * limits.up(up));
}

// The gradients of its operands, and the element again. Beyond a limit a gradient is 0.
template <typename T>
struct ExpertGradients {
  T weight, gate, up, y;
};
template <ActivationKind kKind, typename T>
SMP_HOST_DEVICE ExpertGradients<T> gated_gradients(const GateLimits<T>& limits, T weight, T gate,
                                                   T up, T dy) {
  const Slope<T> at = slope_of<kKind>(limits.gate(gate));
  const T u = limits.up(up);
  const T y = at.value * u, d = weight * dy;
  const T of_gate = gate <= limits.most ? T(1) : T(0);
  const T of_up = up >= -limits.most && up <= limits.most ? T(1) : T(0);
  return {dy * y, of_gate * (d * u * at.derivative), of_up * (d * at.value), weight * y};
}

// Of an element without a gate: weight * activation(up).
template <ActivationKind kKind, typename T>
SMP_HOST_DEVICE ExpertGradients<T> plain_gradients(T weight, T up, T dy) {
  const Slope<T> at = slope_of<kKind>(up);
  return {dy * at.value, T(0), weight * dy * at.derivative, weight * at.value};
}

}  // namespace smp::kernels
