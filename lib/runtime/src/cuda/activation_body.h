#pragma once

#include "cuda/block.h"
#include "functions/activation_math.h"

// The activations of functions/kernels.h by element.
namespace smp::cuda {

template <Activation kKind, typename Block, typename T>
SMP_ANYWHERE void activation_forward(const Block& block, const ActivationShape& shape, const T* u,
                                     const T* bias, T* y) {
  using C = Wide<T>;
  const int64_t cols = shape.cols;
  for_each(block, shape.rows * cols, [&](int64_t i) {
    const int64_t c = i % cols;
    if (!shape.gated) {
      y[i] = T(value_of<kKind>(C(u[i]) + (bias != nullptr ? C(bias[c]) : C(0))));
      return;
    }
    const T* const row = u + i / cols * 2 * cols;
    const C gate = C(row[c]) + (bias != nullptr ? C(bias[c]) : C(0));
    const C up = C(row[cols + c]) + (bias != nullptr ? C(bias[cols + c]) : C(0));
    y[i] = T(value_of<kKind>(gate) * up);
  });
}

// The bias's gradient is the column sums of what u becomes (gated), or dy (not gated).
template <Activation kKind, typename Block, typename T>
SMP_ANYWHERE void activation_backward(const Block& block, const ActivationShape& shape, T* u,
                                      const T* bias, T* dy) {
  using C = Wide<T>;
  const int64_t cols = shape.cols;
  for_each(block, shape.rows * cols, [&](int64_t i) {
    const int64_t c = i % cols;
    const C d = C(dy[i]);
    T* const row = shape.gated ? u + i / cols * 2 * cols : u + i - c;
    const Slope<C> at = slope_of<kKind>(C(row[c]) + (bias != nullptr ? C(bias[c]) : C(0)));
    if (!shape.gated) {
      row[c] = T(at.value);
      dy[i] = T(d * at.derivative);
      return;
    }
    const C up = C(row[cols + c]) + (bias != nullptr ? C(bias[cols + c]) : C(0));
    row[c] = T(d * up * at.derivative);
    row[cols + c] = T(d * at.value);
    dy[i] = T(at.value * up);
  });
}

}  // namespace smp::cuda
