#include "sgd_kernel.h"

#include "sixteen_bit_copy.h"
#include "vector_clones.h"

namespace smp {
namespace {

// step(i, g) is the direction in which weight i moves; put(i, w) stores its 16-bit copy, where
// there is one.
template <typename T, typename Step, typename Put>
[[gnu::always_inline]] inline void descend(const SgdFactors& factors, const UpdateRange<T>& range,
                                           const Step& step, const Put& put) {
  const auto scale = static_cast<T>(factors.scale);
  const auto decay = static_cast<T>(factors.decay);
  const auto rate = static_cast<T>(factors.rate);
  const T* __restrict gradient = range.gradients;
  T* __restrict weight = range.weights;
  const int64_t count = range.count;
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale + decay * weight[i];
    const T w = weight[i] - rate * step(i, g);
    weight[i] = w;
    put(i, w);
  }
}

template <typename T, typename Put>
[[gnu::always_inline]] inline void update(const SgdFactors& factors, const UpdateRange<T>& range,
                                          const Put& put) {
  T* __restrict momentum = range.states[0];
  const auto mu = static_cast<T>(factors.momentum);
  const auto push = [momentum, mu](int64_t i, T g) {
    const T m = mu * momentum[i] + g;
    momentum[i] = m;
    return m;
  };
  if (momentum == nullptr) {
    descend(
        factors, range, [](int64_t, T g) { return g; }, put);
  } else if (factors.nesterov) {
    descend(
        factors, range, [&](int64_t i, T g) { return g + mu * push(i, g); }, put);
  } else {
    descend(factors, range, push, put);
  }
}

}  // namespace

SMP_VECTOR_CLONES
void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range) {
  with_copy(
      range, [&](const auto& put) __attribute__((always_inline)) { update(factors, range, put); });
}

SMP_VECTOR_CLONES
void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range) {
  update(factors, range, [](int64_t, double) {});
}

}  // namespace smp
