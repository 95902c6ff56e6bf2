#pragma once

#include <cmath>
#include <limits>

#include "cuda/block.h"
#include "smp/plan/data/data_files.h"

// Cross-entropy over logits. One block per row. The forward does not change the logits; the
// backward overwrites them with their gradient.
namespace smp::cuda {

// Logits [rows, cols]. Columns are the vocabulary entries from `begin` on. Rows begin `stride`
// elements apart; elements between two rows are neither read nor written.
struct LogitRows {
  int64_t rows = 0, cols = 0, stride = 0, begin = 0;
  const int64_t* targets = nullptr;

  // Whether the row counts in the loss.
  SMP_HOST_DEVICE bool counts(int64_t row) const { return targets[row] != data::kNoTarget; }
  // The column of the row's target, or -1 if another rank has it or the row has no target.
  SMP_HOST_DEVICE int64_t target(int64_t row) const {
    const int64_t column = targets[row] - begin;
    return column >= 0 && column < cols ? column : -1;
  }
};

// Distributes the strips of one row of logits over the block's threads: body(width, c, strip).
// Vocabularies are rarely a multiple of a strip, so the rest of the row is handled by element. Each
// thread reads two strips before it works on the first one, which keeps the memory busy.
template <typename T, typename Block, typename Body>
SMP_HOST_DEVICE void for_each_strip_of_logits(const Block& block, int64_t cols, const T* row,
                                              const Body& body) {
  constexpr StripWidth<T> kWidth;
  constexpr Width<1> kOne;
  constexpr int kAtOnce = 2;
  const int64_t strips = are_aligned(row) ? cols / kWidth : 0, step = block.threads();
  for (int64_t first = block.thread(); first < strips; first += kAtOnce * step) {
    Strip<kernels::Wide<T>, kWidth> read[kAtOnce] = {};
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t c = (first + i * step) * kWidth;
      if (c < strips * kWidth) read[i] = load(kWidth, row + c);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t c = (first + i * step) * kWidth;
      if (c < strips * kWidth) body(kWidth, c, read[i]);
    }
  }
  for (int64_t c = strips * kWidth + block.thread(); c < cols; c += step) {
    body(kOne, c, load(kOne, row + c));
  }
}

// Computes in one pass each row's maximum, into both `maxima` and `own`, and its sum of exp(logit -
// maximum). A thread rescales its sum when it meets a higher logit (Milakov and Gimelshein 2018,
// arXiv 1805.02867).
template <typename Block, typename T>
SMP_HOST_DEVICE void softmax_sums(Block& block, const LogitRows& shape, const T* logits,
                                  kernels::Wide<T>* maxima, kernels::Wide<T>* sums,
                                  kernels::Wide<T>* own) {
  using C = kernels::Wide<T>;
  for_each_row(block, shape.rows, [&](int64_t row) {
    C highest = std::numeric_limits<C>::lowest(), sum = 0;
    for_each_strip_of_logits(block, shape.cols, logits + row * shape.stride,
                             [&](auto width, int64_t /*c*/, const auto& strip) {
                               C above = highest;
                               for (int k = 0; k < width; ++k) above = std::fmax(above, strip[k]);
                               if (above > highest) {
                                 sum *= std::exp(highest - above);
                                 highest = above;
                               }
                               for (int k = 0; k < width; ++k) sum += std::exp(strip[k] - highest);
                             });
    const C maximum = block.maximum(highest);
    sum = block.sum(sum * std::exp(highest - maximum));
    if (block.thread() != 0) return;
    maxima[row] = own[row] = maximum;
    sums[row] = sum;
  });
}

// `maxima` must be the maxima over the whole vocabulary. Writes the sums of exp(logit - maximum),
// and replaces the rank's own maxima by the target's logit - maximum, or 0 if another rank has the
// target.
template <typename Block, typename T>
SMP_HOST_DEVICE void finish_softmax_sums(const Block& block, const LogitRows& shape,
                                         const T* logits, const kernels::Wide<T>* maxima,
                                         kernels::Wide<T>* sums, kernels::Wide<T>* own) {
  using C = kernels::Wide<T>;
  for_each(block, shape.rows, [&](int64_t row) {
    sums[row] *= std::exp(own[row] - maxima[row]);
    const int64_t target = shape.target(row);
    own[row] = target < 0 ? C(0) : C(logits[row * shape.stride + target]) - maxima[row];
  });
}

// logits = scale * (softmax - one_hot(target)), or zeros if the row does not count.
template <typename Block, typename T>
SMP_HOST_DEVICE void softmax_gradient(const Block& block, const LogitRows& shape,
                                      const kernels::Wide<T>* maxima, const kernels::Wide<T>* sums,
                                      kernels::Wide<T> scale, T* logits) {
  using C = kernels::Wide<T>;
  for_each_row(block, shape.rows, [&](int64_t row) {
    T* const to = logits + row * shape.stride;
    const C maximum = maxima[row], factor = scale / sums[row];
    const int64_t target = shape.target(row);
    const bool counts = shape.counts(row);
    for_each_strip_of_logits(block, shape.cols, to, [&](auto width, int64_t c, auto strip) {
      const auto hit = static_cast<int>(target - c);
      for (int k = 0; k < width; ++k) {
        const C share = std::exp(strip[k] - maximum) * factor;
        strip[k] = !counts ? C(0) : k == hit ? share - scale : share;
      }
      store(strip, to + c);
    });
  });
}

}  // namespace smp::cuda
