#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gpu/first_gpu.h"
#include "kernels/adamw_kernel.h"
#include "kernels/sgd_kernel.h"
#include "ledger/tensor_factories.h"
#include "runtime/layers_support.h"
#include "smp/plan/data/data_files.h"
#include "tolerances.h"

// What a GPU computes, against the CPU's loops: whole models, so that every kernel runs as layers
// call it.
using namespace smp;
using namespace smp::data;
using namespace smp::gpu;
using namespace smp::kernels;
using namespace smp::ledger;
using namespace smp::test;

namespace {

constexpr CallContext kTraining{.seed = 7, .step = 3, .first_sample = 4, .trains = true};

constexpr int64_t kBatch = 2, kLength = 13;

// Of both samples: some documents of one token, one of many.
at::Tensor document_starts() {
  constexpr int64_t kStarts[kBatch * kLength] = {0, 1, 1, 1, 1, 1, 6, 7, 7, 9, 9, 9, 9,
                                                 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12};
  at::Tensor starts = zero_tensor({kBatch, kLength}, at::kLong);
  std::copy_n(kStarts, kBatch * kLength, starts.mutable_data_ptr<int64_t>());
  return starts;
}

// `weights_of`: the type to which the weights are rounded first. With `documents` each sample holds
// several, and a target is missing at the end of each.
Outcome outcome_of(const ModelSpec& model, at::ScalarType type, c10::Device device,
                   at::ScalarType weights_of, bool documents = false) {
  const at::NoGradGuard no_grad;
  NamedTensors weights = arbitrary_weights(model, weights_of);
  for (auto& [name, weight] : weights) weight = weight.to(type).to(device);
  std::vector<at::Tensor> batch = arbitrary_batch(model, kBatch, kLength);
  const at::Tensor starts = document_starts(), there = starts.to(device);
  CallContext context = kTraining;
  if (documents) {
    context.document_starts = &there;
    context.document_starts_on_host = &starts;
    for (int64_t i = 0; i < kBatch * kLength; ++i) {
      const bool ends = i % kLength == kLength - 1 ||
                        starts.const_data_ptr<int64_t>()[i + 1] == (i + 1) % kLength;
      if (ends) batch.at(1).mutable_data_ptr<int64_t>()[i] = kNoTarget;
    }
  }
  for (at::Tensor& field : batch) field = field.to(device);
  ModelOnRank on_rank(model, weights, nullptr);
  on_rank.set_context(context);
  Outcome outcome{on_rank.run(batch, true, 0.5), on_rank.gradients()};
  for (auto& [name, gradient] : outcome.gradients) gradient = gradient.to(c10::DeviceType::CPU);
  return outcome;
}

void check_same(const Gpu& gpu, const ModelSpec& model, at::ScalarType type, double allowed,
                bool documents = false) {
  const OutcomeDifference found =
      difference(outcome_of(model, type, gpu.device(), type, documents),
                 outcome_of(model, type, c10::DeviceType::CPU, type, documents));
  MESSAGE(model.name << ", " << std::string(toString(type)) << ": loss within " << found.loss
                     << ", gradients within " << found.gradients);
  CHECK(found.loss <= allowed);
  CHECK(found.gradients <= allowed);
}

// Other kernels round elsewhere: as near to fp64 as the CPU's loops are, or half as far again.
void check_as_near(const Gpu& gpu, const ModelSpec& model, at::ScalarType type,
                   bool documents = false) {
  const Outcome exact = outcome_of(model, at::kDouble, c10::DeviceType::CPU, type, documents);
  const OutcomeDifference ours =
      difference(outcome_of(model, type, gpu.device(), type, documents), exact);
  const OutcomeDifference theirs =
      difference(outcome_of(model, type, c10::DeviceType::CPU, type, documents), exact);
  MESSAGE(model.name << ", " << std::string(toString(type)) << ": loss within " << ours.loss
                     << " of fp64 (CPU " << theirs.loss << "), gradients within " << ours.gradients
                     << " (" << theirs.gradients << ")");
  constexpr double kMost = 1.5;
  CHECK(ours.loss <= std::max(kMost * theirs.loss, 0x1p-8));
  CHECK(ours.gradients <= kMost * theirs.gradients);
}

ModelSpec with_dropout(ModelSpec model) {
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.3;
  return model;
}

ModelSpec with_wide_heads(ModelSpec model) {  // flash attention has no others
  model.head_dim = 8;
  model.hidden_size = 8 * model.num_heads;
  return model;
}

}  // namespace

TEST_CASE("on a GPU: losses and gradients of every kind of block are the CPU's") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  std::vector<ModelSpec> models = small_others();
  for (const ModelSpec& model : {small_gpt2(), small_llama(), small_t5(), small_t5_gated()})
    models.push_back(model);
  ModelSpec window = small_llama();
  window.name = "llama, window";
  window.sliding_window = 5;
  models.push_back(window);
  for (const ModelSpec& model : small_attentions()) models.push_back(model);
  for (const ModelSpec& model : small_mixtures()) models.push_back(model);
  for (const ModelSpec& model : models) {
    check_same(*gpu, model, at::kDouble, tolerance::kDeviceFunctionsF64);
    check_same(*gpu, with_dropout(model), at::kDouble, tolerance::kDeviceFunctionsF64);
    check_same(*gpu, with_dropout(model), at::kFloat, tolerance::kDeviceFunctionsF32);
  }
}

TEST_CASE("on a GPU: losses and gradients of 16 bits, by flash attention and not, are the CPU's") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  for (const ModelSpec& model : {small_gpt2(), small_llama()})
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      check_same(*gpu, with_dropout(model), type, tolerance::kDeviceFunctionsBf16);
      check_as_near(*gpu, with_wide_heads(model), type);
    }
  check_same(*gpu, with_dropout(small_t5()), at::kBFloat16, tolerance::kDeviceFunctionsBf16);
}

TEST_CASE("on a GPU: routers with losses of their own, and experts that are full, are the CPU's") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  for (ModelSpec& model : small_mixtures()) {
    model.router_balance_loss = 0.7;
    model.router_z_loss = 0.3;
    model.expert_capacity_factor = 1.2;
    check_same(*gpu, model, at::kDouble, tolerance::kDeviceFunctionsF64);
    check_same(*gpu, model, at::kFloat, tolerance::kDeviceFunctionsF32);
  }
}

TEST_CASE("on a GPU: documents in a sample are kept apart, by flash attention and not") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  ModelSpec window = small_llama();
  window.sliding_window = 5;
  for (const ModelSpec& model : {small_gpt2(), small_llama(), window}) {
    check_same(*gpu, with_dropout(model), at::kDouble, tolerance::kDeviceFunctionsF64, true);
    check_same(*gpu, model, at::kFloat, tolerance::kDeviceFunctionsF32, true);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      check_as_near(*gpu, with_wide_heads(model), type, true);
    }
  }
}

TEST_CASE("on a GPU: an update looks there whether the sum that it depends on is finite") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  const at::Tensor gradients = full_tensor({1000}, 0.5, at::kFloat).to(gpu->device());
  const at::Tensor weights = zero_tensor_like(gradients), momentum = zero_tensor_like(gradients);
  const auto weights_after = [&](double sum) {
    const at::Tensor there = full_tensor({1}, sum, at::kDouble).to(gpu->device());
    UpdateRange<float> range;
    range.count = gradients.numel();
    range.gradients = gradients.const_data_ptr<float>();
    range.weights = weights.mutable_data_ptr<float>();
    range.states = {momentum.mutable_data_ptr<float>(), nullptr};
    range.only_if_finite = there.const_data_ptr<double>();
    functions_of(weights).sgd_update(SgdFactors{1, 0, 0.9, 1e-2, false}, range);
    return weights.sum().item<float>();
  };
  CHECK(weights_after(std::nan("")) == 0);
  CHECK(weights_after(std::numeric_limits<double>::infinity()) == 0);
  CHECK(weights_after(250) == doctest::Approx(-5));
}

TEST_CASE("on a GPU: sums of squares of flat ranges are the CPU's") {
  const auto gpu = open_a_gpu();
  if (!gpu) return;
  constexpr int64_t kCount = 70001;  // more than one partial sum
  const at::Tensor start = full_tensor({kCount}, 2.0 / (kCount - 1), at::kDouble).cumsum(0).sub_(1);
  const std::vector<FlatRange> ranges = {{0, 5}, {5, kCount - 6}, {kCount - 1, 1}, {3, 0}};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor values = start.to(type), there = values.to(gpu->device());
    const std::vector<double> sums = square_sums(functions_of(there), there, ranges),
                              expected = square_sums(functions_of(values), values, ranges);
    for (size_t i = 0; i < sums.size(); ++i)
      CHECK(std::abs(sums[i] - expected[i]) <= tolerance::kDeviceFunctionsF64 * expected[i]);
  }
}
