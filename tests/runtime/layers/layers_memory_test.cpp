#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ledger/torch_dtype.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/program/fusions.h"
#include "smp/plan/program/liveness.h"
#include "smp/runtime/ledger/memory_ledger.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::layers;
using namespace smp::ledger;
using namespace smp::model;
using namespace smp::program;
using namespace smp::test;

namespace {

// Two calls: one with its weight gradients at once, one with deferred weight gradients. Inputs are
// what the layer before hands on, and a field of the batch.
LayerMemory measure(Layer& layer, const std::vector<at::Tensor>& inputs, MemoryLedger& ledger) {
  LayerMemory memory;
  const CallContext call{.trains = true};
  const auto live = [&] { return ledger.live().bytes; };
  {
    Saved saved;
    const std::vector<at::Tensor> outputs = layer.forward(inputs, call, &saved);
    const int64_t whole = live();
    layer.drop_recomputable(saved);
    memory.recomputable_bytes = whole - live();
    ledger.reset_peak();
    layer.rematerialize(saved);
    memory.complete_peak_bytes = ledger.peak().bytes - whole + memory.recomputable_bytes;
    if (live() != whole) throw std::runtime_error("a completed call keeps something else");
  }
  for (const bool deferred : {false, true}) {
    ledger.reset_peak();
    const int64_t before = live();
    Saved saved;
    std::vector<at::Tensor> outputs = layer.forward(inputs, call, &saved);
    memory.saved_bytes = live() - before;
    memory.forward_peak_bytes = ledger.peak().bytes - before;
    // What it made, and not what it only hands on.
    memory.output_bytes = 0;
    for (const at::Tensor& output : outputs) {
      const bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) {
        return output.data_ptr() == input.data_ptr();
      });
      if (!is_input) memory.output_bytes += static_cast<int64_t>(output.nbytes());
    }

    std::vector<at::Tensor> gradients;
    for (const at::Tensor& output : outputs) gradients.push_back(output.new_ones(output.sizes()));
    ledger.reset_peak();
    const int64_t kept = live();
    if (!deferred) {
      const std::vector<at::Tensor> dx =
          layer.backward(std::move(saved), std::move(gradients), call, nullptr);
      memory.backward_peak_bytes = ledger.peak().bytes - kept;
      outputs.clear();
      memory.input_gradient_bytes = live() - before;  // nothing else is left
      continue;
    }
    DeferredWeightGradients work;
    std::vector<at::Tensor> dx =
        layer.backward(std::move(saved), std::move(gradients), call, &work);
    memory.deferred_backward_peak_bytes = ledger.peak().bytes - kept;
    outputs.clear();
    dx.clear();
    memory.deferred_bytes = live() - before;
    ledger.reset_peak();
    const int64_t held = live();
    work.run();
    memory.weight_peak_bytes = ledger.peak().bytes - held;
    if (live() != before) throw std::runtime_error("a deferred call keeps something");
  }
  return memory;
}

// The most that oneDNN takes beside a product in bf16 while it runs. Which it is depends on the
// CPU: blocks of this size, copies of the factors, the result in fp32. Of all other types the peaks
// are exact, so what the layers take themselves is.
constexpr int64_t kBlocksOfProduct = 132096;

int64_t product_workspace(const ModelSpec& model, const LayerCall& call) {
  if (call.dtype != DType::kBF16) return 0;
  const int64_t widest = std::max({model.hidden_size, model.ffn_hidden_size, model.vocab_size,
                                   model.head_dim * (model.num_heads + 2 * model.num_kv_heads)});
  const int64_t elements =
      call.tokens() * widest + model.hidden_size * (call.tokens() + widest);  // all three matrices
  return kBlocksOfProduct + bytes_of(DType::kF32) * elements;
}

// The plan's peaks of experts are those of a router that sends all tokens to one of them: most take
// less, by up to the products that are so large.
int64_t unused_product(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  if (layer.kind != LayerKind::kMoeBlock) return 0;
  const int64_t widest = model.hidden_size + model.expert_ffn_hidden_size;
  return 3 * bytes_of(wide(call.dtype)) * call.tokens() * widest;
}

struct PeakRange {
  int64_t below = 0, above = 0;  // the plan's
};
void check_peak(std::string_view name, int64_t counted, int64_t expected, const PeakRange& range) {
  CAPTURE(name);
  CHECK(counted >= expected - range.below);
  CHECK(counted <= expected + range.above);
}

void check_memory(const ModelSpec& model, int degree, at::ScalarType type, int64_t batch_size,
                  int64_t sequence, bool sequence_parallel = false, const TensorKinds& kinds = {},
                  const Fusions& fusions = {}) {
  install_counting_allocator();
  std::mutex mutex;
  run_ranks(degree, [&](Communicator& comm) {
    at::set_num_threads(1);
    MemoryLedger ledger(comm.rank(), 0);
    const LedgerScope scope(ledger);
    ModelOnRank rank(model, arbitrary_weights(model, type), &comm, sequence_parallel, kinds,
                     fusions);
    const auto batch = arbitrary_batch(model, batch_size, sequence);
    const LayerCall call{.micro_batch = batch_size,
                         .sequence_length = sequence,
                         .tensor_degree = degree,
                         .tensor_rank = comm.rank(),
                         .dtype = dtype_of(type),
                         .sequence_parallel = sequence_parallel,
                         .kinds = kinds,
                         .fusions = fusions};
    const auto layers = layers_of(model);
    std::vector<at::Tensor> inputs{batch[0]};
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i + 1 == layers.size()) inputs.push_back(batch[1]);
      const LayerMemory counted = measure(*rank.layers()[i], inputs, ledger);
      const LayerMemory expected = memory_of(model, layers[i], call);
      {
        const std::lock_guard lock(mutex);  // doctest's checks come one at a time
        const std::string split = sequence_parallel ? " split sequences" : "";
        INFO(model.name, " ", layers[i].name, " degree ", degree, " element bytes ",
             bytes_of(call.dtype), split);
        const PeakRange workspace{unused_product(model, layers[i], call),
                                  product_workspace(model, call)};
        CHECK(counted.output_bytes == expected.output_bytes);
        CHECK(counted.saved_bytes == expected.saved_bytes);
        check_peak("forward", counted.forward_peak_bytes, expected.forward_peak_bytes, workspace);
        CHECK(counted.recomputable_bytes == expected.recomputable_bytes);
        check_peak("complete", counted.complete_peak_bytes, expected.complete_peak_bytes,
                   workspace);
        CHECK(counted.input_gradient_bytes == expected.input_gradient_bytes);
        check_peak("backward", counted.backward_peak_bytes, expected.backward_peak_bytes,
                   workspace);
        CHECK(counted.deferred_bytes == expected.deferred_bytes);
        check_peak("deferred backward", counted.deferred_backward_peak_bytes,
                   expected.deferred_backward_peak_bytes, workspace);
        check_peak("weight", counted.weight_peak_bytes, expected.weight_peak_bytes, workspace);
      }
      inputs = rank.layers()[i]->forward(inputs, {}, nullptr);
    }
  });
}

}  // namespace

TEST_CASE("layers: counted bytes of every layer are those of memory_of, to the byte") {
  for (const bool llama : {false, true}) {
    for (const int degree : {1, 2}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        for (const bool tied : {false, true}) {
          ModelSpec model = llama ? small_llama() : small_gpt2();
          model.tied_embeddings = tied;
          check_memory(model, degree, type, 2, 9);
          check_memory(model, degree, type, 1, 80);  // longer than a block of queries
          model.hidden_size = 64;
          model.head_dim = 16;
          model.ffn_hidden_size = llama ? 171 : 256;  // 171 does not divide by 2
          model.vocab_size = 211;
          check_memory(model, degree, type, 3, 33);
        }
      }
    }
  }
}

TEST_CASE("layers: counted bytes with dropout, of which nothing is kept") {
  for (ModelSpec model : {small_gpt2(), small_llama(), small_others().at(2), small_t5()}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const LayerCall call{.micro_batch = 2, .sequence_length = 70, .dtype = dtype_of(type)};
      const int64_t kept = memory_of(model, layers_of(model)[1], call).saved_bytes;
      model.hidden_dropout = 0.1;
      model.attention_dropout = 0.2;
      CHECK(memory_of(model, layers_of(model)[1], call).saved_bytes == kept);
      for (const int degree : {1, 2}) check_memory(model, degree, type, 2, 70);
    }
  }
}

TEST_CASE("layers: counted bytes without fusions") {
  std::vector<ModelSpec> models = small_others();
  models.insert(models.end(), {small_gpt2(), small_llama(), small_t5()});
  for (ModelSpec model : models) {
    model.hidden_dropout = 0.1;
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      check_memory(model, 1, type, 2, 70, false, {}, program::kUnfused);
      check_memory(model, 2, type, 2, 70, true, {}, program::kUnfused);
    }
  }
}

TEST_CASE("layers: counted bytes with replicated KV heads") {
  check_memory(small_llama(), 4, at::kFloat, 2, 16);
}

TEST_CASE("layers: counted bytes of blocks of neither family") {
  for (const ModelSpec& model : small_others()) {
    for (const int degree : {1, 2}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        check_memory(model, degree, type, 2, 70);
      }
    }
  }
}

TEST_CASE("layers: counted bytes with norms over all heads, and with sinks") {
  for (const ModelSpec& model : small_attentions()) {
    for (const int degree : {1, 2, 4}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        check_memory(model, degree, type, 2, 72);
        if (degree > 1) check_memory(model, degree, type, 2, 36, true);
      }
    }
  }
}

TEST_CASE("layers: counted bytes of the blocks of an encoder and a decoder") {
  for (const ModelSpec& model : {small_t5(), small_t5_gated()}) {
    for (const int degree : {1, 2}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        check_memory(model, degree, type, 2, 70);
      }
    }
  }
}

TEST_CASE("layers: counted bytes with sequences split over the tensor ranks") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    check_memory(small_gpt2(), 2, type, 2, 70, true);
    check_memory(small_llama(), 4, type, 3, 36, true);
    for (ModelSpec model : {small_t5(), small_t5_gated()}) {
      check_memory(model, 2, type, 2, 70, true);
      model.hidden_dropout = 0.1;
      check_memory(model, 2, type, 3, 34, true);
    }
    for (const ModelSpec& model : small_others()) check_memory(model, 2, type, 3, 34, true);
    ModelSpec drops = small_gpt2();
    drops.hidden_dropout = 0.1;
    check_memory(drops, 2, type, 2, 70, true);
  }
}

TEST_CASE("layers: counted bytes where tensor ranks share some kinds of matrices alone") {
  for (const bool split : {false, true}) {
    for (const TensorKinds& kinds :
         {TensorKinds{.attention = false}, TensorKinds{.mlp = false},
          TensorKinds{.embedding = false},
          TensorKinds{.attention = false, .mlp = false, .embedding = false}}) {
      check_memory(small_gpt2(), 2, at::kFloat, 2, 34, split, kinds);
      check_memory(small_llama(), 4, at::kBFloat16, 2, 36, split, kinds);
      check_memory(small_t5(), 2, at::kDouble, 2, 34, split, kinds);
    }
  }
}

TEST_CASE("layers: counted bytes of blocks of experts") {
  for (const ModelSpec& model : small_mixtures()) {
    for (const int degree : {1, 2}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        check_memory(model, degree, type, 2, 70, false);
        if (degree > 1) check_memory(model, degree, type, 2, 34, true);
      }
    }
  }
}
