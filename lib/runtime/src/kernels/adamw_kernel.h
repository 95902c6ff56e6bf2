#pragma once

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/update_range.h"

// The arithmetic of AdamW on flat ranges, one pass over memory, vectorised for the machine it
// runs on. Pure; safe from any thread.
namespace smp::kernels {

// w, m, v and g of one range; `scale` multiplies each gradient as it is read:
//   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   w = keep w - rate m / (sqrt(v) inverse_root + epsilon)
struct AdamWFactors {
  double scale = 1;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double keep = 1;          // 1 - learning rate * weight decay
  double rate = 0;          // learning rate / (1 - beta1^t)
  double inverse_root = 1;  // 1 / sqrt(1 - beta2^t)
};

// The same of one element: updates m and v, and gives the new weight.
template <typename T>
struct AdamWElement {
  explicit AdamWElement(const AdamWFactors& factors)
      : scale(static_cast<T>(factors.scale)),
        one_less_beta1(static_cast<T>(1.0 - factors.beta1)),
        beta2(static_cast<T>(factors.beta2)),
        one_less_beta2(static_cast<T>(1.0 - factors.beta2)),
        epsilon(static_cast<T>(factors.epsilon)),
        keep(static_cast<T>(factors.keep)),
        rate(static_cast<T>(factors.rate)),
        inverse_root(static_cast<T>(factors.inverse_root)) {}

  SMP_HOST_DEVICE T operator()(T gradient, T weight, T& m, T& v) const {
    const T g = gradient * scale;
    const T momentum = m + one_less_beta1 * (g - m);
    const T variance = beta2 * v + one_less_beta2 * g * g;
    m = momentum;
    v = variance;
    return keep * weight - rate * (momentum / (std::sqrt(variance) * inverse_root + epsilon));
  }

  T scale, one_less_beta1, beta2, one_less_beta2, epsilon, keep, rate, inverse_root;
};

// states: m, v.
void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range);
void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range);

}  // namespace smp::kernels
