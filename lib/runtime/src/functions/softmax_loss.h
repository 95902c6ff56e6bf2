#pragma once

#include <algorithm>
#include <cmath>

#include "functions/tensors.h"

// The mean cross-entropy of rows of logits, of which each tensor rank has the columns from `begin`
// on, in fp32 or fp64.
namespace smp {

// Rows whose softmax is worked through at once, so that they stay in cache between the passes.
inline constexpr int64_t kRowsAtOnce = 8;

// Of the rows' sums of exponentials and, behind them, their targets' logits.
template <typename T>
double mean_loss(int64_t rows, const T* sums) {
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    total += std::log(static_cast<double>(sums[r])) - static_cast<double>(sums[rows + r]);
  }
  return total / static_cast<double>(rows);
}

// Logits become their exponentials, and with `keep` the gradient of the loss. `maxima` [rows] and
// `sums` [2, rows] are filled: sums of exponentials, then targets' logits, less the maximum.
template <typename T>
double softmax_loss(const at::Tensor& logits, const int64_t* targets, int64_t begin,
                    at::Tensor& maxima_of_rows, at::Tensor& sums_of_rows,
                    const TensorRegion& region, bool keep) {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  T* x = data_of<T>(logits);
  T* maxima = data_of<T>(maxima_of_rows);
  T* sums = data_of<T>(sums_of_rows);
  T* target_logits = sums + rows;
  const T scale = T(1) / T(rows);
  // Alone, each few rows go through all steps; a group exchanges between the steps.
  const int64_t step = region.degree() == 1 ? kRowsAtOnce : std::max<int64_t>(rows, 1);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    row_maxima(n, cols, x + r * cols, maxima + r);
    region.all_reduce(maxima_of_rows, ReduceOp::kMax, "tensor.loss");
    exponentials(n, cols, begin, targets + r, maxima + r, x + r * cols, sums + r,
                 target_logits + r);
    region.all_reduce(sums_of_rows, ReduceOp::kSum, "tensor.loss");
    if (keep) softmax_gradient(n, cols, begin, targets + r, sums + r, scale, x + r * cols);
  }
  return mean_loss(rows, sums);
}

}  // namespace smp
