#pragma once

#include "cuda/block.h"
#include "kernels/activation_math.h"

// The elementwise activations of kernels/kernels.h.
namespace smp::cuda {

template <kernels::ActivationKind kKind, typename Block, typename T>
SMP_HOST_DEVICE void activation_forward(const Block& block, const kernels::ActivationShape& shape,
                                        const T* u, const T* bias, T* y) {
  const int64_t cols = shape.cols, u_cols = shape.gated ? 2 * cols : cols;
  for_each_strip<T>(block, shape.rows, cols, are_aligned(u, bias, y),
                    [&](auto width, int64_t row, int64_t c) {
                      const T* const from = u + row * u_cols;
                      auto made = load_with_bias(width, from, bias, c);
                      for (int k = 0; k < width; ++k) made[k] = kernels::value_of<kKind>(made[k]);
                      if (shape.gated) {
                        const auto up = load_with_bias(width, from, bias, cols + c);
                        for (int k = 0; k < width; ++k) made[k] *= up[k];
                      }
                      store(made, y + row * cols + c);
                    });
}

// The bias's gradient is the column sums of the new u (gated), or of the new dy (not gated).
template <kernels::ActivationKind kKind, typename Block, typename T>
SMP_HOST_DEVICE void activation_backward(const Block& block, const kernels::ActivationShape& shape,
                                         T* u, const T* bias, T* dy) {
  const int64_t cols = shape.cols, u_cols = shape.gated ? 2 * cols : cols;
  for_each_strip<T>(block, shape.rows, cols, are_aligned(u, bias, dy),
                    [&](auto width, int64_t row, int64_t c) {
                      T* const in_u = u + row * u_cols;
                      T* const in_dy = dy + row * cols + c;
                      auto d = load(width, in_dy);
                      auto gate = load_with_bias(width, in_u, bias, c);
                      if (shape.gated) {
                        auto up = load_with_bias(width, in_u, bias, cols + c);
                        for (int k = 0; k < width; ++k) {
                          const auto at = kernels::slope_of<kKind>(gate[k]);
                          gate[k] = d[k] * up[k] * at.derivative;
                          d[k] *= at.value;
                          up[k] *= at.value;
                        }
                        store(d, in_u + (cols + c));
                        d = up;
                      } else {
                        for (int k = 0; k < width; ++k) {
                          const auto at = kernels::slope_of<kKind>(gate[k]);
                          gate[k] = at.value;
                          d[k] *= at.derivative;
                        }
                      }
                      store(gate, in_u + c);
                      store(d, in_dy);
                    });
}

}  // namespace smp::cuda
