#include "smp/plan/model/adapters.h"

#include <doctest/doctest.h>

#include "plan/model_samples.h"
#include "smp/plan/model/model_flops.h"

using namespace smp;
using namespace smp::model;

namespace {

using Texts = std::vector<std::string>;
const Texts kAll = {"all_linear"};
const Texts kFused = {"attention.qkv", "attention.output", "mlp.gate_up", "mlp.down"};

// Of all adapters of one block, experts' once each.
ParameterSum parameters(const ModelSpec& model, LayerKind block, const Texts& targets,
                        int64_t rank) {
  ParameterSum sum;
  for (const AdaptedMatrix& matrix : adapted_matrices(model, block, targets)) {
    sum = sum + matrix.parameters(rank);
  }
  return sum;
}

ModelSpec small_mixture() {
  ModelSpec model = small_llama();
  model.num_experts = 4;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = 40;
  model.shared_expert_ffn_hidden_size = 24;
  model.shared_expert_gate = true;
  return model;
}

}  // namespace

TEST_CASE("an adapter has rank x (in + out) parameters beside each linear layer") {
  // 32 wide, 4 heads and 2 KV heads of 8, 88 in the MLP.
  const ModelSpec model = small_llama();
  const double by_hand = 4 * ((32 + 32) + 2 * (32 + 16) + (32 + 32) + 3 * (32 + 88));
  CHECK(parameters(model, LayerKind::kBlock, kAll, 4).all() == by_hand);
  CHECK(adapted_matrices(model, LayerKind::kBlock, kAll).size() == 7);
  // Fused layers share an A: 2 of q, k, v and one of gate and up are gone.
  CHECK(parameters(model, LayerKind::kBlock, kFused, 4).all() == by_hand - 4 * 3 * 32);
  CHECK(adapted_matrices(model, LayerKind::kBlock, kFused).size() == 4);
  const auto two = adapted_matrices(model, LayerKind::kBlock, {"attention.q", "attention.v"});
  REQUIRE(two.size() == 2);
  CHECK(two[0].name == "attention.q");
  CHECK(two[1].name == "attention.v");
  CHECK(two[0].reads == two[1].reads);
}

TEST_CASE("Llama 2 7B has the adapters that PEFT counts") {
  // print_trainable_parameters() of r = 8 on q_proj and v_proj: 4,194,304; of r = 16 on all linear
  // layers: 39,976,960.
  const ModelSpec model = llama2_7b();
  CHECK(32 * parameters(model, LayerKind::kBlock, {"attention.q", "attention.v"}, 8).all() ==
        4'194'304);
  CHECK(32 * parameters(model, LayerKind::kBlock, kAll, 16).all() == 39'976'960);
}

TEST_CASE("tensor ranks cut B beside rows and A beside columns") {
  const ModelSpec model = small_llama();
  for (const AdaptedMatrix& matrix : adapted_matrices(model, LayerKind::kBlock, kFused)) {
    INFO(matrix.name);
    const bool by_columns = matrix.name == "attention.output" || matrix.name == "mlp.down";
    CHECK((matrix.in.cut > 0) == by_columns);
    CHECK((matrix.in.whole > 0) != by_columns);
    CHECK((matrix.out.whole > 0) == by_columns);
  }
  // On four ranks, two hold the same KV head: A [2, 32] whole, B [8 + 2 x 8, 2].
  const AdaptedMatrix qkv = adapted_matrices(model, LayerKind::kBlock, {"attention.qkv"}).front();
  CHECK(qkv.parameters(2).of_rank(4, 2) == 2 * 32 + 2 * (8 + 2 * 8));
  const TensorKinds whole{.attention = false};
  const AdaptedMatrix alone =
      adapted_matrices(model, LayerKind::kBlock, {"attention.q"}, whole).front();
  CHECK(alone.parameters(2).of_rank(4, 2) == 2 * (32 + 32));
}

TEST_CASE("each expert has adapters, the router and a shared expert's gate have none") {
  const ModelSpec model = small_mixture();
  double experts = 0, shared = 0;
  for (const AdaptedMatrix& matrix : adapted_matrices(model, LayerKind::kMoeBlock, kAll)) {
    INFO(matrix.name);
    CHECK(matrix.is_expert == matrix.name.starts_with("mlp.experts."));
    if (matrix.is_expert) experts += matrix.parameters(1).all();
    if (matrix.name.starts_with("mlp.shared_expert.")) shared += matrix.parameters(1).all();
  }
  CHECK(experts == 3 * (32 + 40));
  CHECK(shared == 3 * (32 + 24));
}

TEST_CASE("latent attention and a decoder's second attention are adapted") {
  ModelSpec latent = small_llama();
  latent.kv_lora_rank = 12;
  latent.q_lora_rank = 10;
  latent.qk_head_dim = 6;
  latent.qk_rope_head_dim = 2;
  latent.v_head_dim = 5;
  const auto matrices = adapted_matrices(
      latent, LayerKind::kBlock, {"attention.q_down", "attention.kv_up", "attention.output"});
  REQUIRE(matrices.size() == 3);
  CHECK(matrices[0].parameters(1).all() == 32 + 10);
  CHECK(matrices[1].parameters(1).all() == 12 + 4 * (6 + 5));
  CHECK(matrices[2].parameters(1).all() == 4 * 5 + 32);
  CHECK(matrices[1].input == AdapterInput::kLowRank);

  ModelSpec pair = gpt2_sized(2, 32, 4);
  pair.stack = Stack::kEncoderDecoder;
  pair.decoder_layers = 2;
  const auto cross = adapted_matrices(pair, LayerKind::kCrossBlock, {"attention.k"});
  REQUIRE(cross.size() == 2);
  CHECK(cross[1].name == "cross_attention.k");
  CHECK(cross[1].input == AdapterInput::kMemory);
}

TEST_CASE("targets that the model does not have are problems") {
  const ModelSpec gpt2 = small_gpt2();
  CHECK(problem_of_targets(gpt2, kAll).empty());
  CHECK(problem_of_targets(gpt2, {"attention.qkv", "mlp.up"}).empty());
  CHECK(problem_of_targets(small_llama(), kFused).empty());
  CHECK(problem_of_targets(small_mixture(), {"mlp.gate"}).empty());
  CHECK(problem_of_targets(gpt2, {}) ==
        "names no linear layer: write all_linear, or leave the key out");
  CHECK(problem_of_targets(gpt2, {"all_linear", "mlp.up"}) ==
        "names layers beside all_linear, which is all of them");
  CHECK(problem_of_targets(gpt2, {"mlp.gate_up"}) ==
        "names mlp.gate_up, but this model has no mlp.gate: its linear layers are attention.q, "
        "attention.k, attention.v, attention.output, mlp.up, mlp.down");
  CHECK(problem_of_targets(gpt2, {"attention.qkv", "attention.v"}) ==
        "names attention.v beside attention.qkv");
}

TEST_CASE("a frozen matrix takes 4 flops a weight and an adapter's 6") {
  JobSpec job;
  job.model = small_llama();
  job.training.sequence_length = 16;
  const ParameterCounts counts = parameter_counts(job.model);
  const double block = counts.of(LayerKind::kBlock).each.all();
  const double matmuls = 5 * block + counts.vocabulary.all();
  const double attention = 12.0 * 5 * 16 * 32;
  CHECK(model_flops(job, 3) == model_flops(job.model, 16, 3));
  CHECK(model_flops(job, 3) == 3 * 16 * (6 * matmuls + attention));
  job.training.lora.rank = 2;
  const double adapters = 5 * parameters(job.model, LayerKind::kBlock, kAll, 2).all();
  CHECK(model_flops(job, 3) == 3 * 16 * (4 * matmuls + 6 * adapters + attention));

  job.training.lora.rank = 0;
  job.training.frozen = {"layers.0-1"};  // gradients pass through them to the embedding
  CHECK(model_flops(job, 1) == 16 * (6 * matmuls - 2 * 2 * block + attention));
  job.training.frozen = {"embedding", "layers.0-1"};  // and here they do not
  CHECK(model_flops(job, 1) == 16 * (6 * matmuls - 4 * 2 * block + attention - 8.0 * 2 * 16 * 32));
  job.training.frozen = {"embedding", "layers"};
  CHECK(model_flops(job, 1) == 16 * (2 * 5 * block + 6 * counts.vocabulary.all() + attention / 3));
}
