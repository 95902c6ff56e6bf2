#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ledger/tensor_factories.h"
#include "runtime/host_runner.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/data/data_files.h"
#include "tolerances.h"

// Several documents in a sample: whole models compute what they compute of each document alone, in
// a row of its own.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::ledger;
using namespace smp::model;
using namespace smp::test;

namespace {

// Of 2 samples of 70 tokens, by their first tokens: some of one token, one that nearly fills its
// sample. 70 is no multiple of a strip of queries, and more than a block of them.
constexpr int64_t kBatch = 2, kLength = 70;
const std::vector<std::vector<int64_t>> kStarts = {{0, 1, 9, 10, 11, 20, 45, 63}, {0, 69}};

at::Tensor document_starts() {
  at::Tensor starts = empty_tensor({kBatch, kLength}, at::kLong);
  for (int64_t b = 0; b < kBatch; ++b) {
    int64_t start = 0;
    size_t next = 0;
    const std::vector<int64_t>& of_sample = kStarts[static_cast<size_t>(b)];
    for (int64_t i = 0; i < kLength; ++i) {
      if (next < of_sample.size() && of_sample[next] == i) start = of_sample[next++];
      starts.mutable_data_ptr<int64_t>()[b * kLength + i] = start;
    }
  }
  return starts;
}

CallContext context_of(const at::Tensor& starts) {
  return {
      .seed = 7, .trains = true, .document_starts = &starts, .document_starts_on_host = &starts};
}

// Decoders of every kind: learned, rotary and no positions, KV heads, windows, parallel residuals.
std::vector<ModelSpec> decoders_on_gpus() {
  std::vector<ModelSpec> models = small_others();
  models.push_back(small_gpt2());
  models.push_back(small_llama());
  ModelSpec windowed = small_llama();
  windowed.sliding_window = 5;
  models.push_back(windowed);
  return models;
}

std::vector<ModelSpec> decoders() {
  std::vector<ModelSpec> models = decoders_on_gpus();
  for (const ModelSpec& model : small_attentions()) models.push_back(model);
  return models;
}

// Loss and gradients of documents that each have a row of their own.
Outcome documents_alone(const ModelSpec& model, const NamedTensors& weights,
                        const std::vector<at::Tensor>& batch) {
  ModelOnRank whole(model, weights, nullptr);
  Outcome outcome;
  for (int64_t b = 0; b < kBatch; ++b) {
    const std::vector<int64_t>& starts = kStarts[static_cast<size_t>(b)];
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : kLength;
      const auto rows = [&](const at::Tensor& field) {
        return field.narrow(0, b, 1).narrow(1, begin, end - begin).contiguous();
      };
      const double share = static_cast<double>(end - begin) / (kBatch * kLength);
      outcome.loss += share * whole.run({rows(batch[0]), rows(batch[1])}, true, share);
    }
  }
  outcome.gradients = whole.gradients();
  return outcome;
}

Outcome documents_together(const ModelSpec& model, const NamedTensors& weights,
                           const std::vector<at::Tensor>& batch) {
  const at::Tensor starts = document_starts();
  ModelOnRank whole(model, weights, nullptr);
  whole.set_context(context_of(starts));
  const double loss = whole.run(batch, true);
  return {loss, whole.gradients()};
}

}  // namespace

TEST_CASE("layers: documents in a sample are what each is in a row of its own") {
  for (const ModelSpec& model : decoders()) {
    INFO(model.name);
    const auto batch = arbitrary_batch(model, kBatch, kLength);
    const NamedTensors weights = arbitrary_weights(model, at::kDouble);
    const OutcomeDifference found = difference(documents_together(model, weights, batch),
                                               documents_alone(model, weights, batch));
    CHECK(found.loss <= 1e-13);
    CHECK(found.gradients <= 1e-12);
    for (const auto& [type, allowed] :
         {std::pair(at::kFloat, 1e-5), {at::kBFloat16, 0.04}, {at::kHalf, 0.01}}) {
      const NamedTensors other = arbitrary_weights(model, type);
      const OutcomeDifference narrow =
          difference(documents_together(model, other, batch), documents_alone(model, other, batch));
      CHECK(narrow.loss <= allowed);
      CHECK(narrow.gradients <= allowed);
    }
  }
}

TEST_CASE("layers: a sample of one document is a sample without documents, to the bit") {
  const at::Tensor starts = zero_tensor({kBatch, kLength}, at::kLong);
  for (const ModelSpec& model : decoders()) {
    INFO(model.name);
    const auto batch = arbitrary_batch(model, kBatch, kLength);
    const NamedTensors weights = arbitrary_weights(model, at::kFloat);
    ModelOnRank with(model, weights, nullptr), without(model, weights, nullptr);
    with.set_context(context_of(starts));
    without.set_context({.seed = 7, .trains = true});
    CHECK(with.run(batch, true) == without.run(batch, true));
    for (const auto& [name, gradient] : without.gradients()) {
      const std::string of = name;
      INFO(of);
      CHECK(with.gradients().at(name).equal(gradient));
    }
  }
}

TEST_CASE("layers: tensor ranks keep documents apart, with whole and with split sequences") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    const auto odd = arbitrary_batch(model, kBatch, kLength);
    const NamedTensors weights = arbitrary_weights(model, at::kDouble);
    const Outcome expected = documents_together(model, weights, odd);
    for (const bool splits : {false, true}) {
      INFO(model.name << std::string(splits ? ", split" : ""));
      std::mutex mutex;
      run_ranks(2, [&](Communicator& world) {
        const at::Tensor starts = document_starts();
        ModelOnRank part(model, weights, &world, splits);
        part.set_context(context_of(starts));
        const double loss = part.run(odd, true);
        const std::scoped_lock lock(mutex);
        CHECK(loss == doctest::Approx(expected.loss).epsilon(1e-13));
        for (const LayerSpec& layer : layers_of(model)) {
          for (const ParameterSpec& spec : parameters_of(model, layer)) {
            INFO(spec.name);
            const at::Tensor& whole = expected.gradients.at(spec.name);
            const double away = part.gradients()
                                    .at(spec.name)
                                    .sub(box_of(model, spec, whole, 2, world.rank()))
                                    .abs()
                                    .max()
                                    .item()
                                    .toDouble();
            // The keys' bias has no gradient but rounding.
            CHECK(away <=
                  tolerance::kTensorParallel * std::max(whole.abs().max().item().toDouble(), 1e-2));
          }
        }
      });
    }
  }
}

TEST_CASE("a GPU's functions: documents in a sample are kept apart as on the CPU") {
  for (const bool flash : {false, true}) {
    for (const ModelSpec& model : decoders_on_gpus()) {
      for (const auto& [type, allowed] : {std::pair(at::kDouble, tolerance::kDeviceFunctionsF64),
                                          {at::kFloat, tolerance::kDeviceFunctionsF32},
                                          {at::kBFloat16, tolerance::kDeviceFunctionsBf16}}) {
        // In bf16 the gradients of heads' norms are mostly rounding, with one document as with
        // many.
        if (model.qk_norm && type == at::kBFloat16) continue;
        const std::string name = at::toString(type);
        INFO(model.name << ", " << name << std::string(flash ? ", flash" : ""));
        const auto batch = arbitrary_batch(model, kBatch, kLength);
        const NamedTensors weights = arbitrary_weights(model, type);
        const Outcome expected = documents_together(model, weights, batch);
        const HostFunctions functions(HostRunner(3, 1, flash));
        const FunctionsScope scope(functions);
        const OutcomeDifference found =
            difference(documents_together(model, weights, batch), expected);
        CHECK(found.loss <= allowed);
        CHECK(found.gradients <= allowed);
      }
    }
  }
}

TEST_CASE("a GPU's functions: documents in a sample drop what they drop on the CPU") {
  for (ModelSpec model : decoders_on_gpus()) {
    INFO(model.name);
    model.hidden_dropout = 0.2;
    model.attention_dropout = 0.3;
    const auto batch = arbitrary_batch(model, kBatch, kLength);
    const NamedTensors weights = arbitrary_weights(model, at::kDouble);
    const Outcome expected = documents_together(model, weights, batch);
    const HostFunctions functions(HostRunner(3, 1, false));
    const FunctionsScope scope(functions);
    const OutcomeDifference found = difference(documents_together(model, weights, batch), expected);
    CHECK(found.loss <= tolerance::kDeviceFunctionsF64);
    CHECK(found.gradients <= tolerance::kDeviceFunctionsF64);
  }
}
