#pragma once

#include "cuda/block.h"
#include "functions/wide.h"
#include "update_rule.h"

// The optimizers' updates and the norm of gradients over flat ranges.
namespace smp::cuda {

// Of a range whose weights are of 16 bits: `Copy` is their type, and range.copy theirs. Of others
// Copy is T, and there is none. element(gradient, weight, i) updates the states.
template <typename Copy, typename Block, typename T, typename Element>
SMP_ANYWHERE void update(const Block& block, const UpdateRange<T>& range, const Element& element) {
  Copy* const copy = reinterpret_cast<Copy*>(range.copy);
  for_each(block, range.count, [&](int64_t i) {
    const T weight = element(range.gradients[i], range.weights[i], i);
    range.weights[i] = weight;
    if (copy != nullptr) copy[i] = Copy(weight);
  });
}

// partials[p]: squares of the p-th run of kOfPartial values, a block to each, in an order that the
// number of blocks does not change.
inline constexpr int64_t kOfPartial = 1 << 16;

template <typename Block, typename T>
SMP_ANYWHERE void square_partials(Block& block, int64_t count, const T* values, double* partials) {
  for_each_row(block, (count + kOfPartial - 1) / kOfPartial, [&](int64_t p) {
    const int64_t begin = p * kOfPartial;
    const int64_t size = count - begin < kOfPartial ? count - begin : kOfPartial;
    double sum = 0;
    for_each_column(block, size, [&](int64_t i) {
      const auto value = static_cast<double>(values[begin + i]);
      sum += value * value;
    });
    sum = block.sum(sum);
    if (block.thread() == 0) partials[p] = sum;
  });
}

}  // namespace smp::cuda
