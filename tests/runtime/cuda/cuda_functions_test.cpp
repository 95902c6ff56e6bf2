#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/adamw_kernel.h"
#include "kernels/sgd_kernel.h"
#include "ledger/tensor_factories.h"
#include "runtime/host_runner.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "tolerances.h"

// The class that computes on GPUs, on CPU tensors with host threads in place of kernels, against
// the CPU's loops: whole models, so that every function is called as layers call it.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::ledger;
using namespace smp::test;

namespace {

constexpr CallContext kTraining{.seed = 7, .step = 3, .first_sample = 4, .trains = true};

Outcome outcome_of(const ModelSpec& model, at::ScalarType type, int64_t tensor_degree = 1) {
  const at::NoGradGuard no_grad;
  const NamedTensors weights = arbitrary_weights(model, type);
  const std::vector<at::Tensor> batch = arbitrary_batch(model, 2, 13);
  Outcome outcome;
  std::mutex mutex;
  run_ranks(static_cast<int>(tensor_degree), [&](Communicator& world) {
    const at::NoGradGuard also;
    ModelOnRank on_rank(model, weights, world.size() > 1 ? &world : nullptr);
    on_rank.set_context(kTraining);
    const double loss = on_rank.run(batch, true, 0.5);
    const std::scoped_lock lock(mutex);
    if (world.rank() == 0) outcome = {loss, on_rank.gradients()};
  });
  return outcome;
}

void check_same(const ModelSpec& model, at::ScalarType type, const HostFunctions& functions,
                double allowed, int64_t tensor_degree = 1) {
  const Outcome expected = outcome_of(model, type, tensor_degree);
  const FunctionsScope scope(functions);
  const Outcome ours = outcome_of(model, type, tensor_degree);
  const OutcomeDifference found = difference(ours, expected);
  CHECK(found.loss <= allowed);
  CHECK(found.gradients <= allowed);
  MESSAGE(model.num_layers << " layers: loss within " << found.loss << ", gradients within "
                           << found.gradients);
}

ModelSpec with_dropout(ModelSpec model) {
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.3;
  return model;
}

std::vector<ModelSpec> all_models() {
  std::vector<ModelSpec> models = small_others();
  models.push_back(small_gpt2());
  models.push_back(small_llama());
  models.push_back(small_t5());
  models.push_back(small_t5_gated());
  for (const ModelSpec& model : small_attentions()) models.push_back(model);
  for (const ModelSpec& model : small_mixtures()) models.push_back(model);
  return models;
}

}  // namespace

TEST_CASE("a GPU's functions: losses and gradients of every kind of block are the CPU's") {
  const HostFunctions functions(HostRunner(3, 1, false));
  for (const ModelSpec& model : all_models()) {
    check_same(model, at::kDouble, functions, tolerance::kDeviceFunctionsF64);
    check_same(with_dropout(model), at::kDouble, functions, tolerance::kDeviceFunctionsF64);
  }
  for (const ModelSpec& model : {with_dropout(small_gpt2()), small_llama(), small_t5()}) {
    check_same(model, at::kFloat, functions, tolerance::kDeviceFunctionsF32);
    check_same(model, at::kBFloat16, functions, tolerance::kDeviceFunctionsBf16);
    check_same(model, at::kHalf, functions, tolerance::kDeviceFunctionsBf16);
  }
}

TEST_CASE("a GPU's functions: routers with losses of their own, and experts that are full") {
  const HostFunctions functions(HostRunner(3, 2, false));
  for (ModelSpec& model : small_mixtures()) {
    INFO(model.name);
    const bool sigmoid = model.router == RouterKind::kSigmoid;
    model.router_balance_loss = 0.7;
    model.router_balance_over = sigmoid ? BalanceOver::kSequence : BalanceOver::kMicrobatch;
    model.router_z_loss = 0.3;
    model.expert_capacity_factor = 1.2;
    for (const int64_t ranks : {1, 2}) {
      check_same(model, at::kDouble, functions, tolerance::kDeviceFunctionsF64, ranks);
    }
    check_same(model, at::kFloat, functions, tolerance::kDeviceFunctionsF32);
    check_same(model, at::kBFloat16, functions, tolerance::kDeviceFunctionsBf16);
  }
}

TEST_CASE(
    "a GPU's functions: rows of logits begin every 16 bytes, and what is between is nothing") {
  constexpr int64_t kRows = 6, kIn = 5, kVocabulary = 37;
  const HostFunctions functions(HostRunner(3, 2, false));
  const auto matrix = [](int64_t rows, at::ScalarType type) {
    return full_tensor({rows * kIn}, 0.7, at::kDouble).cumsum(0).sin().view({rows, kIn}).to(type);
  };
  const at::Tensor targets = full_tensor({kRows}, 7, at::kLong).cumsum(0).remainder(kVocabulary);
  for (const auto& [type, allowed] : {std::pair(at::kDouble, tolerance::kDeviceFunctionsF64),
                                      std::pair(at::kFloat, tolerance::kDeviceFunctionsF32),
                                      std::pair(at::kBFloat16, tolerance::kDeviceFunctionsBf16),
                                      std::pair(at::kHalf, tolerance::kDeviceFunctionsBf16)}) {
    const at::Tensor x = matrix(kRows, type), weight = matrix(kVocabulary, type);
    const at::Tensor expected = functions_of(x).logits(x, weight);
    const at::Tensor ours = functions.logits(x, weight);
    const int64_t between = ours.stride(0) - kVocabulary;
    CHECK(ours.stride(0) * ours.element_size() % 16 == 0);
    CHECK(between > 0);
    CHECK(between * ours.element_size() < 16);
    CHECK(relative_difference(ours, expected) <= allowed);

    const at::Tensor padding =
        ours.as_strided({kRows, between}, {ours.stride(0), 1}, kVocabulary).fill_(NAN);
    const auto results = [&](const DeviceFunctions& by, const at::Tensor& logits) {
      const at::TensorOptions wide = wide_options(logits);
      const SoftmaxStatistics statistics{empty_tensor({kRows}, wide),
                                         empty_tensor({2, kRows}, wide)};
      const double loss = by.softmax_loss(logits, targets, 0, statistics, {}, true);
      if (is_narrow(logits)) by.softmax_gradient(logits, targets, 0, statistics, 1);
      const at::Tensor dweight = zero_tensor({kVocabulary, kIn}, wide);
      const at::Tensor dbias = zero_tensor({kVocabulary}, wide);
      by.add_product(logits, x, 1, dweight);
      by.add_column_sums(logits, dbias);
      return std::vector{full_tensor({1}, loss, wide), logits, by.product(logits, weight.t()),
                         dweight, dbias};
    };
    const std::vector<at::Tensor> of_cpu = results(functions_of(x), expected);
    const std::vector<at::Tensor> of_gpu = results(functions, ours);
    for (size_t i = 0; i < of_cpu.size(); ++i) {
      CHECK(relative_difference(of_gpu[i], of_cpu[i]) <= allowed);
    }
    CHECK(padding.isnan().all().item<bool>());
  }
}

TEST_CASE("a GPU's functions: queries that see a window of the keys before them") {
  ModelSpec model = with_dropout(small_llama());
  model.sliding_window = 5;
  check_same(model, at::kDouble, HostFunctions(HostRunner(2, 1, true)),
             tolerance::kDeviceFunctionsF64);
  check_same(model, at::kDouble, HostFunctions(HostRunner(2, 2, false), 100),
             tolerance::kDeviceFunctionsF64);
}

TEST_CASE("a GPU's functions: several threads a block, and a few queries' scores at a time") {
  const HostFunctions functions(HostRunner(2, 2, false), 100);
  check_same(with_dropout(small_gpt2()), at::kDouble, functions, tolerance::kDeviceFunctionsF64);
  check_same(small_llama(), at::kDouble, functions, tolerance::kDeviceFunctionsF64);
  check_same(with_dropout(small_t5()), at::kDouble, functions, tolerance::kDeviceFunctionsF64);
}

TEST_CASE("a GPU's functions: tensor ranks, which exchange within the loss") {
  const HostFunctions functions(HostRunner(2, 1, false));
  for (const ModelSpec& model : {with_dropout(small_gpt2()), small_llama(), small_t5()}) {
    check_same(model, at::kDouble, functions, tolerance::kDeviceFunctionsF64, 2);
  }
  check_same(small_llama(), at::kBFloat16, functions, tolerance::kDeviceFunctionsBf16, 2);
}

TEST_CASE("a GPU's functions: the way through torch's flash attention") {
  const HostFunctions functions(HostRunner(2, 1, true));
  // Sinks, and values that are narrower than keys, are beyond torch's own.
  std::vector<ModelSpec> models = small_attentions();
  models.back().sliding_window = 0;
  models.push_back(small_mixtures()[4]);
  models.insert(models.end(), {small_gpt2(), small_llama()});
  for (const ModelSpec& model : models) {
    check_same(model, at::kDouble, functions, tolerance::kDeviceFunctionsF64);
    check_same(model, at::kBFloat16, functions, tolerance::kDeviceFunctionsBf16);
  }
  // A memory's keys and values go it too; scores without a scale say nothing in 16 bits.
  check_same(small_t5(), at::kDouble, functions, tolerance::kDeviceFunctionsF64);
}

namespace {

void check_squares(const DeviceFunctions& functions, const at::Tensor& values,
                   const std::vector<FlatRange>& ranges) {
  const std::vector<double> sums = square_sums(functions, values, ranges),
                            expected = square_sums(functions_of(values), values, ranges);
  for (size_t i = 0; i < sums.size(); ++i) {
    CHECK(std::abs(sums[i] - expected[i]) <= tolerance::kDeviceFunctionsF64 * expected[i]);
  }
}

}  // namespace

TEST_CASE("a GPU's functions: updates and norms of flat ranges are the CPU's") {
  const HostFunctions functions(HostRunner(2, 2, false));
  constexpr int64_t kCount = 70001;  // more than one partial sum
  const at::Tensor start = full_tensor({kCount}, 2.0 / (kCount - 1), at::kDouble).cumsum(0).sub_(1);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor values = start.to(type);
    std::vector<FlatRange> ranges = {{0, 5}, {5, kCount - 6}, {kCount - 1, 1}, {3, 0}};
    check_squares(functions, values, ranges);
    for (int64_t i = 0; i < 130; ++i) ranges.push_back({i, i % 3 == 0 ? 0 : 100 * i});
    check_squares(functions, values, ranges);  // more than a launch is told of
    check_squares(functions, values, {});
  }
  for (const bool nesterov : {false, true}) {
    at::Tensor ours = start.clone(), expected = start.clone();
    at::Tensor momentum = start.mul(0.1), expected_momentum = momentum.clone();
    const SgdFactors factors{0.5, 0.01, 0.9, 1e-2, nesterov};
    const auto range_of = [&](at::Tensor& weights, at::Tensor& state) {
      UpdateRange<double> range;
      range.count = kCount;
      range.gradients = start.const_data_ptr<double>();
      range.weights = weights.mutable_data_ptr<double>();
      range.states = {state.mutable_data_ptr<double>(), nullptr};
      return range;
    };
    functions.sgd_update(factors, range_of(ours, momentum));
    functions_of(ours).sgd_update(factors, range_of(expected, expected_momentum));
    CHECK(relative_difference(ours, expected) <= tolerance::kDeviceFunctionsF64);
    CHECK(relative_difference(momentum, expected_momentum) <= tolerance::kDeviceFunctionsF64);
    const double sum = std::nan("");
    const DeviceFunctions& of_cpu = functions_of(ours);
    for (const DeviceFunctions* const device :
         {&of_cpu, static_cast<const DeviceFunctions*>(&functions)}) {
      UpdateRange<double> held_back = range_of(expected, expected_momentum);
      held_back.only_if_finite = &sum;
      device->sgd_update(factors, held_back);
      device->adamw_update({}, held_back);
    }
    CHECK(relative_difference(ours, expected) <= tolerance::kDeviceFunctionsF64);
  }
}
