#include "adamw_kernel.h"

#include <cmath>

#include "sixteen_bit_copy.h"
#include "vector_clones.h"

namespace smp {
namespace {

// put(i, w) stores the 16-bit copy of weight i, where there is one.
template <typename T, typename Put>
[[gnu::always_inline]] inline void update(const AdamWFactors& factors, const UpdateRange<T>& range,
                                          const Put& put) {
  const auto scale = static_cast<T>(factors.scale);
  const auto one_less_beta1 = static_cast<T>(1.0 - factors.beta1);
  const auto beta2 = static_cast<T>(factors.beta2);
  const auto one_less_beta2 = static_cast<T>(1.0 - factors.beta2);
  const auto epsilon = static_cast<T>(factors.epsilon);
  const auto keep = static_cast<T>(factors.keep);
  const auto rate = static_cast<T>(factors.rate);
  const auto inverse_root = static_cast<T>(factors.inverse_root);
  const T* __restrict gradient = range.gradients;
  T* __restrict weight = range.weights;
  T* __restrict momentum = range.states[0];
  T* __restrict variance = range.states[1];
  const int64_t count = range.count;
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale;
    const T m = momentum[i] + one_less_beta1 * (g - momentum[i]);
    const T v = beta2 * variance[i] + one_less_beta2 * g * g;
    const T w = keep * weight[i] - rate * (m / (std::sqrt(v) * inverse_root + epsilon));
    momentum[i] = m;
    variance[i] = v;
    weight[i] = w;
    put(i, w);
  }
}

}  // namespace

SMP_VECTOR_CLONES
void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range) {
  with_copy(
      range, [&](const auto& put) __attribute__((always_inline)) { update(factors, range, put); });
}

SMP_VECTOR_CLONES
void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range) {
  update(factors, range, [](int64_t, double) {});
}

}  // namespace smp
