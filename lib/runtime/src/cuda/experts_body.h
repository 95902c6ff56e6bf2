#pragma once

#include "cuda/block.h"
#include "kernels/expert_math.h"

// Rows of a mixture of experts (kernels/expert_functions.h).
namespace smp::cuda {

// y [i] = x [rows[i] / per_token].
template <typename Block, typename T>
SMP_HOST_DEVICE void dispatch_rows(const Block& block, int64_t used, int64_t cols,
                                   int64_t per_token, const int32_t* rows, const T* x, T* y) {
  for_each_strip<T>(block, used, cols, are_aligned(x, y), [&](auto width, int64_t row, int64_t c) {
    store(load(width, x + rows[row] / per_token * cols + c), y + row * cols + c);
  });
}

// y [token] = the sum of x [places[token, i]], best expert first.
template <typename Block, typename T>
SMP_HOST_DEVICE void combine_rows(const Block& block, int64_t tokens, int64_t cols,
                                  int64_t per_token, const int32_t* places, const T* x, T* y) {
  for_each_strip<T>(block, tokens, cols, are_aligned(x, y),
                    [&](auto width, int64_t token, int64_t c) {
                      Strip<kernels::Wide<T>, width> sum = {};
                      for (int64_t i = 0; i < per_token; ++i) {
                        const int32_t row = places[token * per_token + i];
                        if (row < 0) continue;
                        const auto more = load(width, x + row * cols + c);
                        for (int k = 0; k < width; ++k) sum[k] += more[k];
                      }
                      store(sum, y + token * cols + c);
                    });
}

// `weights`: from the first of these rows on. y += weight * bias.
template <typename Block, typename T>
SMP_HOST_DEVICE void add_weighed_bias(const Block& block, int64_t rows, int64_t cols,
                                      const kernels::RowWeights<kernels::Wide<T>>& weights,
                                      const T* bias, T* y) {
  for_each_strip<T>(block, rows, cols, are_aligned(bias, y),
                    [&](auto width, int64_t row, int64_t c) {
                      const kernels::Wide<T> weight = weights.of(row);
                      const auto own = load(width, bias + c);
                      auto sum = load(width, y + row * cols + c);
                      for (int k = 0; k < width; ++k) sum[k] += weight * own[k];
                      store(sum, y + row * cols + c);
                    });
}

// d_weights += the product of each row of dy and the bias. One block per row.
template <typename Block, typename T>
SMP_HOST_DEVICE void add_bias_products(Block& block, int64_t rows, int64_t cols,
                                       const kernels::RowWeights<kernels::Wide<T>>& weights,
                                       const T* bias, const T* dy, kernels::Wide<T>* d_weights) {
  using C = kernels::Wide<T>;
  for_each_row(block, rows, [&](int64_t row) {
    C sum = 0;
    for_each_column(block, cols, [&](int64_t c) { sum += C(dy[row * cols + c]) * C(bias[c]); });
    sum = block.sum(sum);
    if (block.thread() == 0) d_weights[weights.place(row)] += sum;
  });
}

// The operands of an activation of rows [rows, cols]; gate may be null.
template <typename T>
struct ActivationRows {
  int64_t rows = 0, cols = 0;
  T *up = nullptr, *gate = nullptr;
  kernels::RowWeights<kernels::Wide<T>> weights;
  kernels::GateLimits<kernels::Wide<T>> limits{};
};

template <kernels::ActivationKind kKind, typename Block, typename T>
SMP_HOST_DEVICE void weighed_activation(const Block& block, const ActivationRows<T>& rows, T* y) {
  for_each_strip<T>(block, rows.rows, rows.cols, are_aligned(rows.up, rows.gate, y),
                    [&](auto width, int64_t row, int64_t c) {
                      const int64_t at = row * rows.cols + c;
                      const auto weight = rows.weights.of(row);
                      auto made = load(width, rows.up + at);
                      if (rows.gate != nullptr) {
                        const auto gate = load(width, rows.gate + at);
                        for (int k = 0; k < width; ++k) {
                          made[k] =
                              kernels::gated_element<kKind>(rows.limits, weight, gate[k], made[k]);
                        }
                      } else {
                        for (int k = 0; k < width; ++k) {
                          made[k] = weight * kernels::value_of<kKind>(made[k]);
                        }
                      }
                      store(made, y + at);
                    });
}

// The gradients of up and gate in their place, y in that of dy; d_weights may be null. One block
// per row.
template <kernels::ActivationKind kKind, typename Block, typename T>
SMP_HOST_DEVICE void weighed_activation_backward(Block& block, const ActivationRows<T>& rows, T* dy,
                                                 kernels::Wide<T>* d_weights) {
  using C = kernels::Wide<T>;
  const bool aligned = are_aligned(rows.up, rows.gate, dy);
  for_each_row(block, rows.rows, [&](int64_t row) {
    const C weight = rows.weights.of(row);
    C sum = 0;
    for_each_strip_of_row<T>(block, rows.cols, aligned, [&](auto width, int64_t c) {
      const int64_t at = row * rows.cols + c;
      auto up = load(width, rows.up + at);
      auto gate = load_or_zeros(width, rows.gate, at);
      auto d = load(width, dy + at);
      for (int k = 0; k < width; ++k) {
        const kernels::ExpertGradients<C> made =
            rows.gate != nullptr
                ? kernels::gated_gradients<kKind>(rows.limits, weight, gate[k], up[k], d[k])
                : kernels::plain_gradients<kKind>(weight, up[k], d[k]);
        sum += made.weight;
        up[k] = made.up;
        gate[k] = made.gate;
        d[k] = made.y;
      }
      store(up, rows.up + at);
      if (rows.gate != nullptr) store(gate, rows.gate + at);
      store(d, dy + at);
    });
    sum = block.sum(sum);
    if (d_weights != nullptr && block.thread() == 0) d_weights[rows.weights.place(row)] = sum;
  });
}

}  // namespace smp::cuda
