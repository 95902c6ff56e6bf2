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

// partials[p]: squares of the p-th part of kOfPartial values, a block to each, in an order that the
// number of blocks does not change. Small parts, so that short ranges too have blocks for many
// multiprocessors; each element of a strip has a sum of its own, which the next need not wait for.
inline constexpr int64_t kOfPartial = 1 << 13;

template <typename Block, typename T>
SMP_ANYWHERE void square_partials(Block& block, int64_t count, const T* values, double* partials) {
  const bool aligned = are_aligned(values);
  for_each_row(block, (count + kOfPartial - 1) / kOfPartial, [&](int64_t p) {
    const T* const from = values + p * kOfPartial;
    const int64_t left = count - p * kOfPartial;
    Strip<double, StripWidth<T>::value> sums = {};
    for_each_strip_of_row<T>(block, left < kOfPartial ? left : kOfPartial, aligned,
                             [&](auto width, int64_t i) {
                               const auto strip = load(width, from + i);
                               for (int k = 0; k < width; ++k) {
                                 const auto value = static_cast<double>(strip[k]);
                                 sums[k] += value * value;
                               }
                             });
    double sum = 0;
    for (int k = 0; k < StripWidth<T>(); ++k) sum += sums[k];
    sum = block.sum(sum);
    if (block.thread() == 0) partials[p] = sum;
  });
}

}  // namespace smp::cuda
