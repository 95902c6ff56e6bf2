#include <algorithm>
#include <cmath>

#include "kernels/cpu_functions.h"
#include "kernels/element_types.h"
#include "kernels/mean_loss.h"
#include "kernels/threads.h"
#include "ledger/tensor_factories.h"

namespace smp::kernels {
namespace {

// Rows whose softmax is worked through at once, so that they stay in cache between the passes.
constexpr int64_t kRowsAtOnce = 8;

// The three steps for a few rows.
template <typename T>
struct LossRows {
  const int64_t cols, begin;
  const int64_t* targets;
  T *x, *maxima, *sums, *target_logits;

  void find_maxima(int64_t first, int64_t rows) const {
    row_maxima(rows, cols, x + first * cols, maxima + first);
  }
  void add_exponentials(int64_t first, int64_t rows) const {
    exponentials(rows, cols, begin, targets + first, maxima + first, x + first * cols, sums + first,
                 target_logits + first);
  }
  void make_gradient(int64_t first, int64_t rows, T scale) const {
    softmax_gradient(rows, cols, begin, targets + first, sums + first, scale, x + first * cols);
  }
};

template <typename T>
double wide_loss(const at::Tensor& logits, const int64_t* targets, int64_t begin,
                 const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                 bool makes_gradient) {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  T* const sums = data_of<T>(statistics.sums);
  const LossRows<T> all{
      cols, begin, targets, data_of<T>(logits), data_of<T>(statistics.maxima), sums, sums + rows};
  const T scale = T(1) / T(rows);
  const auto few_rows = [&](const auto& step) {
    for_ranges({.count = rows, .cost = cols, .multiple = kRowsAtOnce},
               [&](int64_t, int64_t first, int64_t end) {
                 for (int64_t r = first; r < end; r += kRowsAtOnce) {
                   step(r, std::min(kRowsAtOnce, end - r));
                 }
               });
  };
  // Alone, each few rows go through all steps; a group exchanges between the steps.
  if (!exchange) {
    few_rows([&](int64_t first, int64_t n) {
      all.find_maxima(first, n);
      all.add_exponentials(first, n);
      if (makes_gradient) all.make_gradient(first, n, scale);
    });
    return mean_loss(rows, sums, targets);
  }
  few_rows([&](int64_t first, int64_t n) { all.find_maxima(first, n); });
  exchange(statistics.maxima, comm::ReduceOp::kMax);
  few_rows([&](int64_t first, int64_t n) { all.add_exponentials(first, n); });
  exchange(statistics.sums, comm::ReduceOp::kSum);
  if (makes_gradient) {
    few_rows([&](int64_t first, int64_t n) { all.make_gradient(first, n, scale); });
  }
  return mean_loss(rows, sums, targets);
}

// A few rows of 16-bit logits in fp32.
template <typename T>
float* widened_rows(const at::Tensor& logits, int64_t first, int64_t rows,
                    const at::Tensor& buffer) {
  const int64_t cols = logits.size(1);
  widen(rows * cols, data_of<T>(logits) + first * cols, data_of<float>(buffer));
  return data_of<float>(buffer);
}

at::Tensor buffer_of_rows(const at::Tensor& logits) {
  return ledger::empty_tensor({std::min(logits.size(0), kRowsAtOnce), logits.size(1)},
                              wide_options(logits));
}

template <typename T>
double narrow_loss(const at::Tensor& logits, const int64_t* targets, int64_t begin,
                   const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange) {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  const at::Tensor buffer = buffer_of_rows(logits);
  auto* maxima = data_of<float>(statistics.maxima);
  auto* sums = data_of<float>(statistics.sums);
  for (int64_t r = 0; r < rows; r += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, rows - r);
    row_maxima(n, cols, widened_rows<T>(logits, r, n, buffer), maxima + r);
  }
  if (exchange) exchange(statistics.maxima, comm::ReduceOp::kMax);
  for (int64_t r = 0; r < rows; r += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, rows - r);
    exponentials(n, cols, begin, targets + r, maxima + r, widened_rows<T>(logits, r, n, buffer),
                 sums + r, sums + rows + r);
  }
  if (exchange) exchange(statistics.sums, comm::ReduceOp::kSum);
  return mean_loss(rows, sums, targets);
}

template <typename T>
void narrow_gradient(const at::Tensor& logits, const int64_t* targets, int64_t begin,
                     const SoftmaxStatistics& statistics, double scale) {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  const at::Tensor buffer = buffer_of_rows(logits);
  const auto* maxima = data_of<float>(statistics.maxima);
  const auto* sums = data_of<float>(statistics.sums);
  float unused[2 * kRowsAtOnce];
  for (int64_t r = 0; r < rows; r += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, rows - r);
    float* wide = widened_rows<T>(logits, r, n, buffer);
    exponentials(n, cols, begin, targets + r, maxima + r, wide, unused, unused + kRowsAtOnce);
    softmax_gradient(n, cols, begin, targets + r, sums + r,
                     static_cast<float>(scale / static_cast<double>(rows)), wide);
    narrow(n * cols, wide, data_of<T>(logits) + r * cols);
  }
}

}  // namespace

double cpu_softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                        const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                        bool makes_gradient) {
  const auto* ids = targets.const_data_ptr<int64_t>();
  double mean = 0;
  with_element_type(logits, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kIsNarrow<T>) {
      mean = narrow_loss<T>(logits, ids, begin, statistics, exchange);
    } else {
      mean = wide_loss<T>(logits, ids, begin, statistics, exchange, makes_gradient);
    }
  });
  return mean;
}

void cpu_softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                          const SoftmaxStatistics& statistics, double scale) {
  with_element_type(logits, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kIsNarrow<T>) {
      narrow_gradient<T>(logits, targets.const_data_ptr<int64_t>(), begin, statistics, scale);
    }
  });
}

}  // namespace smp::kernels
