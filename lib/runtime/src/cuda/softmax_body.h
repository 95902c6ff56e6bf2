#pragma once

#include <cmath>

#include "cuda/block.h"
#include "functions/wide.h"

// Cross-entropy over logits [rows, cols], whose columns are the vocabulary entries from `begin` on,
// a block to each row. The logits stay as they are until their gradient takes their place.
namespace smp::cuda {

template <typename Block, typename T>
SMP_ANYWHERE void row_maxima(Block& block, int64_t rows, int64_t cols, const T* logits,
                             Wide<T>* maxima) {
  using C = Wide<T>;
  for_each_row(block, rows, [&](int64_t row) {
    C highest = -INFINITY;
    for_each_column(block, cols, [&](int64_t c) {
      const C value = C(logits[row * cols + c]);
      if (value > highest) highest = value;
    });
    highest = block.maximum(highest);
    if (block.thread() == 0) maxima[row] = highest;
  });
}

// Sums of exp(logit - maximum), and the target's logit - maximum, or 0 where another rank has it.
template <typename Block, typename T>
SMP_ANYWHERE void softmax_sums(Block& block, int64_t rows, int64_t cols, int64_t begin,
                               const int64_t* targets, const Wide<T>* maxima, const T* logits,
                               Wide<T>* sums, Wide<T>* target_logits) {
  using C = Wide<T>;
  for_each_row(block, rows, [&](int64_t row) {
    const T* const from = logits + row * cols;
    C sum = 0;
    for_each_column(block, cols, [&](int64_t c) { sum += std::exp(C(from[c]) - maxima[row]); });
    sum = block.sum(sum);
    if (block.thread() != 0) return;
    const int64_t target = targets[row] - begin;
    sums[row] = sum;
    target_logits[row] = target >= 0 && target < cols ? C(from[target]) - maxima[row] : C(0);
  });
}

// logits become scale * (softmax - one_hot(target)).
template <typename Block, typename T>
SMP_ANYWHERE void softmax_gradient(const Block& block, int64_t rows, int64_t cols, int64_t begin,
                                   const int64_t* targets, const Wide<T>* maxima,
                                   const Wide<T>* sums, Wide<T> scale, T* logits) {
  using C = Wide<T>;
  for_each(block, rows * cols, [&](int64_t i) {
    const int64_t row = i / cols, col = i % cols;
    const C share = std::exp(C(logits[i]) - maxima[row]) / sums[row];
    logits[i] = T(scale * (share - (targets[row] - begin == col ? C(1) : C(0))));
  });
}

}  // namespace smp::cuda
