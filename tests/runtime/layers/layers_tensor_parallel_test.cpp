#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "plan/list_samples.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::layers;
using namespace smp::mesh;
using namespace smp::model;
using namespace smp::test;

namespace {

// Sums the gradients of a replicated KV head over the ranks that hold it, as the engine does.
void reduce_kv(const ModelSpec& model, Communicator& comm, NamedTensors& gradients) {
  const int copies = static_cast<int>(kv_copies(model, comm.size()));
  if (copies == 1) return;
  std::vector<int> members;
  for (int i = 0; i < copies; ++i) members.push_back(comm.rank() / copies * copies + i);
  const auto holders = comm.split(members);
  for (auto& [name, gradient] : gradients) {
    const bool normed = model.qk_norm_over == QkNormOver::kAllHeads;
    if (name.find("attention.k.") == std::string::npos &&
        name.find("attention.v.") == std::string::npos &&
        !(normed && name.ends_with("attention.k_norm.weight"))) {
      continue;
    }
    holders
        ->all_reduce(gradient.data_ptr(), gradient.data_ptr(), gradient.numel(), DType::kF64,
                     ReduceOp::kSum, "tensor.kv_gradients")
        ->wait();
  }
}

void check_split(const ModelSpec& model, int degree, bool sequence_parallel = false,
                 const TensorKinds& kinds = {}) {
  at::set_num_threads(1);
  const NamedTensors weights = arbitrary_weights(model, at::kDouble);
  const auto batch = arbitrary_batch(model, 2, sequence_parallel ? 12 : 9);
  const CallContext context{.seed = 7, .first_sample = 3, .trains = true};
  ModelOnRank whole(model, weights, nullptr);
  whole.set_context(context);
  const double loss = whole.run(batch, true);
  std::mutex mutex;
  run_ranks(degree, [&](Communicator& comm) {
    at::set_num_threads(1);
    ModelOnRank part(model, weights, &comm, sequence_parallel, kinds);
    part.set_context(context);
    DeferredWeightGradients deferred;
    const double split_loss = part.run(batch, true, 1, sequence_parallel ? &deferred : nullptr);
    deferred.run();
    NamedTensors gradients = part.gradients();
    if (kinds.attention) reduce_kv(model, comm, gradients);
    const std::lock_guard lock(mutex);  // doctest's checks come one at a time
    CHECK(std::abs(split_loss - loss) <= tolerance::kTensorParallel * loss);
    for (const LayerSpec& layer : layers_of(model)) {
      for (const ParameterSpec& spec : parameters_of(model, layer, kinds)) {
        INFO("degree ", degree, " ", spec.name);
        const at::Tensor expected =
            box_of(model, spec, whole.gradients().at(spec.name), degree, comm.rank());
        const double difference =
            gradients.at(spec.name).sub(expected).abs().max().item().toDouble();
        const double scale = whole.gradients().at(spec.name).abs().max().item().toDouble();
        // The keys' bias has no gradient but rounding: compared absolutely.
        CHECK(difference <= tolerance::kTensorParallel * std::max(scale, 1e-2));
      }
    }
  });
}

}  // namespace

TEST_CASE("layers: tensor-parallel ranks compute what one rank does, lists of layers") {
  // Norms read what they gather; the loss of the last list reads logits that the ranks share.
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) {
    for (int degree : {2, 3, 4}) check_split(model, degree);
  }
}

TEST_CASE("layers: tensor-parallel ranks compute what one rank does, GPT-2") {
  // 37 vocabulary rows do not divide by 2 or 4.
  for (int degree : {2, 4}) check_split(small_gpt2(), degree);
}

TEST_CASE("layers: tensor-parallel ranks compute what one rank does, Llama") {
  // With 4 ranks each of the 2 KV heads is held twice.
  for (int degree : {2, 4}) check_split(small_llama(), degree);
  ModelSpec tied = small_llama();
  tied.tied_embeddings = true;
  tied.num_kv_heads = 4;
  check_split(tied, 4);
}

TEST_CASE("layers: tensor-parallel ranks compute what one rank does, blocks of neither family") {
  for (const ModelSpec& model : small_others()) {
    INFO(model.name);
    for (int degree : {2, 4}) check_split(model, degree);
  }
}

TEST_CASE("layers: tensor-parallel ranks share norms over all heads, and sinks") {
  // Of 2 KV heads, 4 ranks have copies.
  for (const ModelSpec& model : small_attentions()) {
    INFO(model.name);
    for (int degree : {2, 4}) {
      for (const bool split : {false, true}) check_split(model, degree, split);
    }
    check_split(model, 2, true, {.attention = false});
  }
}

TEST_CASE("layers: tensor-parallel ranks compute what one rank does, experts and their routers") {
  // 4, 5 and 6 experts: some ranks have more than others, and of 4 each has one.
  for (const ModelSpec& model : small_mixtures()) {
    INFO(model.name);
    for (int degree : {2, 4}) {
      for (const bool split : {false, true}) check_split(model, degree, split);
    }
    check_split(model, 2, true, {.mlp = false});
  }
}

TEST_CASE("layers: ranks that split sequences too compute what one rank does") {
  for (int degree : {2, 4}) {
    check_split(small_gpt2(), degree, true);
    check_split(small_llama(), degree, true);
    for (const ModelSpec& model : {small_t5(), small_t5_gated()}) check_split(model, degree, true);
    for (const ModelSpec& model : small_others()) {
      INFO(model.name);
      check_split(model, degree, true);
    }
  }
}

TEST_CASE("layers: ranks that split sequences drop what one rank drops") {
  for (ModelSpec model : {small_gpt2(), small_llama(), small_t5()}) {
    model.hidden_dropout = 0.2;
    model.attention_dropout = 0.1;
    for (int degree : {2, 4}) check_split(model, degree, true);
    if (model.stack == Stack::kDecoder) check_split(model, 2, true, {.attention = false});
  }
}

TEST_CASE("layers: ranks that share some kinds of matrices alone compute what one rank does") {
  for (const bool split : {false, true}) {
    for (const TensorKinds& kinds :
         {TensorKinds{.attention = false}, TensorKinds{.mlp = false},
          TensorKinds{.embedding = false},
          TensorKinds{.attention = false, .mlp = false, .embedding = false}}) {
      check_split(small_gpt2(), 2, split, kinds);
      check_split(small_llama(), 4, split, kinds);
      check_split(small_t5(), 2, split, kinds);
    }
  }
}

TEST_CASE("layers: tensor parallelism sends what the plan counts, and nothing else") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    run_ranks(2, [&](Communicator& comm) {
      at::set_num_threads(1);
      ModelOnRank part(model, arbitrary_weights(model, at::kFloat), &comm);
      part.run(arbitrary_batch(model, 2, 9), true);
      const int64_t tokens = 18, activation = tokens * model.hidden_size;
      struct Expected {
        int64_t calls, bytes;
      };
      const auto bytes = [&](int64_t count) {
        return wire_bytes(CollectiveOp::kAllReduce, 2, comm.rank(), count, 4);
      };
      const int64_t blocks = model.num_layers;
      std::map<std::string, Expected> expected{
          {"tensor.forward", {1 + 2 * blocks, (1 + 2 * blocks) * bytes(activation)}},
          {"tensor.backward", {1 + 2 * blocks, (1 + 2 * blocks) * bytes(activation)}},
          {"tensor.loss", {2, bytes(tokens) + bytes(2 * tokens)}}};
      for (const TrafficCount& count : comm.traffic()) {
        const auto it = expected.find(count.label);
        if (it == expected.end() || it->second.calls != count.calls ||
            it->second.bytes != count.wire_bytes || count.op != CollectiveOp::kAllReduce) {
          throw std::runtime_error("unexpected traffic " + count.label);
        }
        expected.erase(it);
      }
      if (!expected.empty()) throw std::runtime_error("missing traffic");
    });
  }
}
