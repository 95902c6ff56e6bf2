#pragma once

#include <type_traits>

#include "cuda/launches.h"
#include "cuda/launching.h"
#include "cuda/update_body.h"

// Definitions of FlatLaunches (launches.h). Include this file once per Runner.
namespace smp::cuda {

// Calls body with a null pointer to the type of the range's 16-bit copy, or to T without a copy.
template <typename T, typename Body>
void with_copy_type(const kernels::UpdateRange<T>& range, const Body& body) {
  if constexpr (sizeof(T) == 4) {
    if (range.copy != nullptr && range.copy_dtype == DType::kBF16) {
      return body(static_cast<c10::BFloat16*>(nullptr));
    }
    return body(static_cast<c10::Half*>(nullptr));
  } else {
    return body(static_cast<T*>(nullptr));
  }
}

template <typename Copy, typename Runner, typename T>
void launch_adamw(const Runner& runner, const kernels::AdamWElement<T>& element,
                  const kernels::UpdateRange<T>& range) {
  runner.run(blocks_of<Runner>(range.count), [=] SMP_BODY(typename Runner::Block & block) {
    update<Copy>(block, range, [&](T gradient, T weight, int64_t i) {
      return element(gradient, weight, range.states[0][i], range.states[1][i]);
    });
  });
}

template <kernels::SgdKind kKind, typename Copy, typename Runner, typename T>
void launch_sgd(const Runner& runner, const kernels::SgdFactors& factors,
                const kernels::UpdateRange<T>& range) {
  const kernels::SgdElement<kKind, T> element(factors);
  runner.run(blocks_of<Runner>(range.count), [=] SMP_BODY(typename Runner::Block & block) {
    update<Copy>(block, range, [&](T gradient, T weight, int64_t i) {
      return element(gradient, weight, range.states[0], i);
    });
  });
}

template <typename Runner, typename T>
void FlatLaunches<Runner, T>::adamw_update(const kernels::AdamWFactors& factors,
                                           const kernels::UpdateRange<T>& range) const {
  const kernels::AdamWElement<T> element(factors);
  with_copy_type(range, [&](auto* copy) {
    launch_adamw<std::remove_pointer_t<decltype(copy)>>(runner_, element, range);
  });
}

template <typename Runner, typename T>
void FlatLaunches<Runner, T>::sgd_update(const kernels::SgdFactors& factors,
                                         const kernels::UpdateRange<T>& range) const {
  with_copy_type(range, [&](auto* copy) {
    using Copy = std::remove_pointer_t<decltype(copy)>;
    switch (kernels::kind_of(factors, range.states[0] != nullptr)) {
      case kernels::SgdKind::kPlain:
        return launch_sgd<kernels::SgdKind::kPlain, Copy>(runner_, factors, range);
      case kernels::SgdKind::kMomentum:
        return launch_sgd<kernels::SgdKind::kMomentum, Copy>(runner_, factors, range);
      case kernels::SgdKind::kNesterov:
        return launch_sgd<kernels::SgdKind::kNesterov, Copy>(runner_, factors, range);
    }
  });
}

template <typename Runner, typename T>
int64_t FlatLaunches<Runner, T>::count_partials(int64_t count) {
  return cuda::count_partials(count);
}

// A launch takes up to SquareRanges::kMost ranges.
template <typename Runner, typename T>
void FlatLaunches<Runner, T>::sum_squares(const T* values,
                                          const std::vector<kernels::FlatRange>& ranges,
                                          double* sums) const {
  int64_t all = 0;
  for (auto next = ranges.begin(); next != ranges.end();) {
    SquareRanges told;
    for (; next != ranges.end() && told.count < SquareRanges::kMost; ++next) told.add(*next);
    double* const partials = sums + all;
    runner_.run(told.partials(), [=] SMP_BODY(typename Runner::Block & block) {
      cuda::sum_squares(block, told, values, partials);
    });
    all += told.partials();
  }
  runner_.run(1, [=] SMP_BODY(typename Runner::Block & block) {
    sum_partials(block, all, sums, sums + all);
  });
}

}  // namespace smp::cuda
