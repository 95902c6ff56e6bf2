#include "kernels/sgd_kernel.h"

#include "kernels/sixteen_bit_copy.h"
#include "kernels/vector_clones.h"

namespace smp::kernels {
namespace {

// put(i, w) stores the 16-bit copy of weight i, where there is one.
template <SgdKind kKind, typename T, typename Put>
[[gnu::always_inline]] inline void descend(const SgdFactors& factors, const UpdateRange<T>& range,
                                           const Put& put) {
  const SgdElement<kKind, T> element(factors);
  const T* __restrict gradient = range.gradients;
  T* __restrict weight = range.weights;
  T* __restrict momentum = range.states[0];
  const int64_t count = range.count;
  for (int64_t i = 0; i < count; ++i) {
    const T w = element(gradient[i], weight[i], momentum, i);
    weight[i] = w;
    put(i, w);
  }
}

template <typename T, typename Put>
[[gnu::always_inline]] inline void update(const SgdFactors& factors, const UpdateRange<T>& range,
                                          const Put& put) {
  if (range.is_held_back()) return;
  switch (kind_of(factors, range.states[0] != nullptr)) {
    case SgdKind::kPlain: return descend<SgdKind::kPlain>(factors, range, put);
    case SgdKind::kMomentum: return descend<SgdKind::kMomentum>(factors, range, put);
    case SgdKind::kNesterov: return descend<SgdKind::kNesterov>(factors, range, put);
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

}  // namespace smp::kernels
