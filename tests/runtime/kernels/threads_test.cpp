#include "kernels/threads.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/device_functions.h"
#include "ledger/tensor_factories.h"
#include "runtime/layers_support.h"
#include "tolerances.h"

// Work of one rank that its threads divide.
using namespace smp;
using namespace smp::kernels;
using namespace smp::test;

namespace {

// While it lives, this thread computes with so many.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadsScope() { at::set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  const int before_;
};

Outcome outcome_of(const ModelSpec& model, int threads) {
  const at::NoGradGuard no_grad;
  const ThreadsScope scope(threads);
  ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
  rank.set_context({.seed = 7, .step = 3, .first_sample = 4, .trains = true});
  const double loss = rank.run(arbitrary_batch(model, 16, 60), true, 0.5);
  return {loss, rank.gradients()};
}

}  // namespace

TEST_CASE("threads: ranges take each item once, and begin at multiples") {
  const ThreadsScope scope(3);
  for (const int64_t count : {0, 1, 63, 64, 65, 1000}) {
    const DividedWork work{.count = count, .cost = 1 << 20, .multiple = 64};
    std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
    std::atomic<int64_t> ranges = 0;
    for_ranges(work, [&](int64_t range, int64_t begin, int64_t end) {
      ++ranges;
      if (range > 0 && begin % 64 != 0) ranges = -1000;
      for (int64_t i = begin; i < end; ++i) ++taken[static_cast<size_t>(i)];
    });
    CHECK(ranges == ranges_of(work));
    CHECK(std::all_of(taken.begin(), taken.end(), [](const auto& times) { return times == 1; }));
  }
  CHECK(ranges_of({.count = 1000, .cost = 1 << 20}) == 3);
  CHECK(ranges_of({.count = 1000, .cost = 1}) == 1);  // does not pay
  CHECK(ranges_of({.count = 130, .cost = 1 << 20, .multiple = 64}) == 3);
  CHECK(ranges_of({.count = 128, .cost = 1 << 20, .multiple = 64}) == 2);
  CHECK(ranges_of({.count = 1000, .cost = 1 << 20, .adds_sums = true}) == 16);
}

TEST_CASE("threads: a rank of four computes what a rank of one does") {
  std::vector<ModelSpec> models = small_others();
  models.insert(models.end(), {small_gpt2(), small_llama(), small_t5()});
  for (const ModelSpec& model : small_attentions()) models.push_back(model);
  for (const ModelSpec& model : small_mixtures()) models.push_back(model);
  for (ModelSpec& model : models) {
    INFO(model.name);
    model.hidden_dropout = 0.2;
    model.attention_dropout = 0.1;
    model.max_positions = 64;
    const OutcomeDifference found = difference(outcome_of(model, 4), outcome_of(model, 1));
    CHECK(found.loss <= tolerance::kDeviceFunctionsF64);
    CHECK(found.gradients <= tolerance::kDeviceFunctionsF64);
  }
}

TEST_CASE("threads: column sums have the same bits with any number of them") {
  const at::NoGradGuard no_grad;
  constexpr int64_t kRows = 1000, kCols = 96;
  const at::Tensor x =
      ledger::full_tensor({kRows * kCols}, 0.7, at::kFloat).cumsum(0).sin().view({kRows, kCols});
  const at::Tensor weight = ledger::full_tensor({kCols}, 1.1, at::kFloat);
  const auto sums_of = [&](int threads) {
    const ThreadsScope scope(threads);
    const DeviceFunctions& functions = functions_of(x);
    const NormShape shape{.rows = kRows, .cols = kCols};
    std::vector<at::Tensor> sums;
    for (int i = 0; i < 4; ++i) sums.push_back(ledger::zero_tensor({kCols}, at::kFloat));
    functions.add_column_sums(x, sums[0]);
    const at::Tensor y = ledger::empty_tensor_like(x), dy = x.clone();
    const at::Tensor stats = ledger::empty_tensor({kRows, 2}, at::kFloat);
    functions.norm_forward(shape, 1e-5, x, weight, weight, y, stats);
    functions.norm_backward(shape, dy, x, stats, weight, {}, sums[1], sums[2]);
    functions.activation_backward({kRows, kCols}, y, weight, dy, sums[3]);
    sums.insert(sums.end(), {y, dy});
    return sums;
  };
  const std::vector<at::Tensor> one = sums_of(1), three = sums_of(3);
  for (size_t i = 0; i < one.size(); ++i) {
    INFO(i);
    CHECK(one[i].equal(three[i]));
    CHECK(one[i].abs().sum().item<float>() > 0);
  }
}
