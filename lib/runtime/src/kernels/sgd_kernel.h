#pragma once

#include "kernels/host_device.h"
#include "kernels/update_range.h"

// The arithmetic of SGD on flat ranges, one pass over memory, vectorised for the machine it runs
// on. Pure; safe from any thread.
namespace smp::kernels {

// w, m and g of one range; `scale` multiplies each gradient as it is read:
//   g += decay w;  m = momentum m + g;  w -= rate (nesterov ? g + momentum m : m)
// Without momentum there is no m, and w -= rate g.
struct SgdFactors {
  double scale = 1;
  double decay = 0;
  double momentum = 0;
  double rate = 0;
  bool nesterov = false;
};

enum class SgdKind { kPlain, kMomentum, kNesterov };
constexpr SgdKind kind_of(const SgdFactors& factors, bool has_momentum) {
  if (!has_momentum) return SgdKind::kPlain;
  return factors.nesterov ? SgdKind::kNesterov : SgdKind::kMomentum;
}

// The same of one element: updates m, unless there is none, and gives the new weight.
template <SgdKind kKind, typename T>
struct SgdElement {
  explicit SgdElement(const SgdFactors& factors)
      : scale(static_cast<T>(factors.scale)),
        decay(static_cast<T>(factors.decay)),
        mu(static_cast<T>(factors.momentum)),
        rate(static_cast<T>(factors.rate)) {}

  SMP_HOST_DEVICE T operator()(T gradient, T weight, T* m, int64_t i) const {
    const T g = gradient * scale + decay * weight;
    if constexpr (kKind == SgdKind::kPlain) {
      return weight - rate * g;
    } else {
      const T momentum = mu * m[i] + g;
      m[i] = momentum;
      return weight - rate * (kKind == SgdKind::kNesterov ? g + mu * momentum : momentum);
    }
  }

  T scale, decay, mu, rate;
};

// states: m, or none.
void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range);
void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range);

}  // namespace smp::kernels
