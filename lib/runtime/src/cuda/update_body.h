#pragma once

#include "cuda/block.h"
#include "kernels/flat_range.h"
#include "kernels/update_range.h"
#include "kernels/wide.h"

// The optimizers' updates and the norm of gradients over flat ranges.
namespace smp::cuda {

// Updates a range. Copy: the type of 16-bit weights, which range.copy points to; T if there are
// none. element(gradient, weight, i) updates the optimizer states and returns the new weight.
template <typename Copy, typename Block, typename T, typename Element>
SMP_HOST_DEVICE void update(const Block& block, const kernels::UpdateRange<T>& range,
                            const Element& element) {
  if (range.is_held_back()) return;
  Copy* const copy = reinterpret_cast<Copy*>(range.copy);
  for_each(block, range.count, [&](int64_t i) {
    const T weight = element(range.gradients[i], range.weights[i], i);
    range.weights[i] = weight;
    if (copy != nullptr) copy[i] = Copy(weight);
  });
}

// Squares are summed in parts of kOfPartial values, one block per part. The order of additions does
// not depend on the number of blocks. Parts are small, so that short ranges also occupy many
// multiprocessors.
inline constexpr int64_t kOfPartial = 1 << 13;

SMP_HOST_DEVICE int64_t count_partials(int64_t count) {
  return (count + kOfPartial - 1) / kOfPartial;
}

// Ranges with adjacent partial sums: those of range i begin at firsts[i].
struct SquareRanges {
  static constexpr int kMost = 64;

  int count = 0;
  int64_t begins[kMost], counts[kMost], firsts[kMost + 1] = {0};

  void add(const kernels::FlatRange& range) {
    begins[count] = range.begin;
    counts[count] = range.count;
    firsts[count + 1] = firsts[count] + count_partials(range.count);
    ++count;
  }
  SMP_HOST_DEVICE int64_t partials() const { return firsts[count]; }
  // The range of a partial sum.
  SMP_HOST_DEVICE int range_of(int64_t partial) const {
    int first = 0, behind = count;
    while (behind - first > 1) {
      const int middle = (first + behind) / 2;
      (firsts[middle] <= partial ? first : behind) = middle;
    }
    return first;
  }
};

// Each element of a strip has its own sum, so that additions do not wait for each other.
template <typename Block, typename T>
SMP_HOST_DEVICE void sum_squares(Block& block, const SquareRanges& ranges, const T* values,
                                 double* partials) {
  for_each_row(block, ranges.partials(), [&](int64_t partial) {
    const int range = ranges.range_of(partial);
    const int64_t done = (partial - ranges.firsts[range]) * kOfPartial;
    const int64_t left = ranges.counts[range] - done;
    const T* const of_range = values + ranges.begins[range];
    Strip<double, StripWidth<T>::value> sums = {};
    for_each_strip_of_row<T>(block, left < kOfPartial ? left : kOfPartial, are_aligned(of_range),
                             [&](auto width, int64_t i) {
                               const auto strip = load(width, of_range + done + i);
                               for (int k = 0; k < width; ++k) {
                                 const auto value = static_cast<double>(strip[k]);
                                 sums[k] += value * value;
                               }
                             });
    double sum = 0;
    for (int k = 0; k < StripWidth<T>(); ++k) sum += sums[k];
    sum = block.sum(sum);
    if (block.thread() == 0) partials[partial] = sum;
  });
}

// Runs on one block.
template <typename Block>
SMP_HOST_DEVICE void sum_partials(Block& block, int64_t count, const double* partials,
                                  double* all) {
  double sum = 0;
  for_each_column(block, count, [&](int64_t i) { sum += partials[i]; });
  sum = block.sum(sum);
  if (block.thread() == 0) *all = sum;
}

}  // namespace smp::cuda
