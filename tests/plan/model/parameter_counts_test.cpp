#include "smp/plan/model/parameter_counts.h"

#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

#include "plan/model_samples.h"
#include "smp/plan/model/layers.h"

using namespace smp;
using namespace smp::model;

namespace {

int64_t sum_of_parameters(const ModelSpec& model) {
  int64_t sum = 0;
  for (const LayerSpec& layer : layers_of(model)) {
    for (const ParameterSpec& parameter : parameters_of(model, layer)) sum += parameter.size();
  }
  return sum;
}

ModelSpec neox_20b() {
  ModelSpec model = gpt2_sized(44, 6144, 64);
  set_family(model, ModelFamily::kTransformer);
  model.position_embedding = PositionKind::kRotary;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.parallel_residual = true;
  model.vocab_size = 50432;
  model.tied_embeddings = false;
  return model;
}

ModelSpec phi_2() {
  ModelSpec model = gpt2_sized(32, 2560, 32);
  set_family(model, ModelFamily::kTransformer);
  model.position_embedding = PositionKind::kRotary;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = model.head_bias = true;
  model.parallel_residual = model.shared_norm = true;
  model.vocab_size = 51200;
  model.tied_embeddings = false;
  return model;
}

ModelSpec t5(int64_t layers, int64_t hidden, int64_t heads, int64_t head_dim, int64_t ffn) {
  ModelSpec model = gpt2_sized(layers, hidden, heads);
  set_family(model, ModelFamily::kTransformer);
  model.stack = Stack::kEncoderDecoder;
  model.decoder_layers = layers;
  model.mlp = MlpKind::kRelu;
  model.norm = NormKind::kRmsNorm;
  model.position_embedding = PositionKind::kRelative;
  model.head_dim = head_dim;
  model.ffn_hidden_size = ffn;
  model.vocab_size = 32128;
  return model;
}

ModelSpec mixtral_8x7b() {
  ModelSpec model = llama_sized(32, 4096, 32, 8, 14336, 32000);
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = 14336;
  return model;
}

ModelSpec qwen3_30b_a3b() {
  ModelSpec model = llama_sized(48, 2048, 32, 4, 6144, 151936);
  model.head_dim = 128;
  model.qk_norm = true;
  model.num_experts = 128;
  model.experts_per_token = 8;
  model.expert_ffn_hidden_size = 768;
  return model;
}

ModelSpec deepseek_v3() {
  ModelSpec model = llama_sized(61, 7168, 128, 128, 18432, 129280);
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  model.qk_head_dim = 128;
  model.qk_rope_head_dim = 64;
  model.v_head_dim = 128;
  model.first_dense_layers = 3;
  model.num_experts = 256;
  model.experts_per_token = 8;
  model.expert_ffn_hidden_size = 2048;
  model.shared_expert_ffn_hidden_size = 2048;
  return model;
}

}  // namespace

TEST_CASE("each family's parameters are counted as its publisher counts them") {
  CHECK(parameter_count(llama_sized(32, 4096, 32, 8, 14336, 32000)) == 7'241'732'096);  // Mistral
  CHECK(parameter_count(mixtral_8x7b()) == 46'702'792'704);

  ModelSpec qwen2 = llama_sized(28, 3584, 28, 4, 18944, 152064);
  qwen2.qkv_bias = true;
  CHECK(parameter_count(qwen2) == 7'615'616'512);

  ModelSpec qwen3 = llama_sized(36, 4096, 32, 8, 12288, 151936);
  qwen3.qk_norm = true;
  CHECK(parameter_count(qwen3) == 8'190'735'360);
  CHECK(parameter_count(qwen3_30b_a3b()) == 30'532'122'624);
  CHECK(parameter_count(neox_20b()) == 20'554'567'680);
  CHECK(parameter_count(phi_2()) == 2'779'683'840);
  CHECK(parameter_count(t5(6, 512, 8, 64, 2048)) == 60'506'624);
  CHECK(parameter_count(t5(24, 1024, 128, 128, 65536)) == 11'307'321'344);

  ModelSpec t5_v1_1_xl = t5(24, 2048, 32, 64, 5120);
  t5_v1_1_xl.mlp = MlpKind::kGeglu;
  t5_v1_1_xl.tied_embeddings = false;
  CHECK(parameter_count(t5_v1_1_xl) == 2'849'757'184);

  ModelSpec bert = gpt2_sized(24, 1024, 16);  // large, uncased, with both heads
  bert.stack = Stack::kEncoder;
  bert.head_bias = true;
  bert.vocab_size = 30522;
  bert.max_positions = 512;
  CHECK(parameter_count(bert) == 336'226'108);
  CHECK(parameter_count(deepseek_v3()) == 671'026'404'352);
}

TEST_CASE("active parameters are those that one token passes through") {
  CHECK(parameter_counts(mixtral_8x7b()).active() == 12'879'925'248);
  CHECK(parameter_counts(llama2_7b()).active() == 6'738'415'616);
}

TEST_CASE("the counts by arithmetic are the sums over the parameters") {
  std::mt19937_64 engine(11);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
  };
  const auto coin = [&] { return engine() % 2 == 0; };
  for (int i = 0; i < 400; ++i) {
    ModelSpec model = gpt2_sized(pick(1, 9), 8 * pick(1, 6), 4);
    set_family(model, ModelFamily::kTransformer);
    model.stack = static_cast<Stack>(pick(0, 2));
    model.mlp = static_cast<MlpKind>(pick(0, 3));
    model.norm = static_cast<NormKind>(pick(0, 1));
    model.position_embedding = static_cast<PositionKind>(pick(0, 4));
    for (bool* flag :
         {&model.qkv_bias, &model.attention_output_bias, &model.mlp_bias, &model.head_bias,
          &model.qk_norm, &model.shared_norm, &model.tied_embeddings}) {
      *flag = coin();
    }
    model.num_kv_heads = pick(0, 1) ? 4 : 2;
    model.vocab_size = pick(2, 300);
    model.vocab_multiple_of = pick(1, 16);
    if (model.stack == Stack::kEncoderDecoder) model.decoder_layers = pick(1, 5);
    if (model.stack == Stack::kDecoder && coin()) {
      model.num_experts = pick(1, 6);
      model.experts_per_token = 1;
      model.expert_ffn_hidden_size = pick(1, 50);
      model.shared_expert_ffn_hidden_size = coin() ? pick(1, 50) : 0;
      model.first_dense_layers = pick(0, model.num_layers);
      model.moe_layer_period = pick(1, 3);
      model.num_mtp_layers = pick(0, 2);
    }
    if (coin()) {
      model.kv_lora_rank = pick(1, 20);
      model.q_lora_rank = pick(0, 20);
      model.qk_head_dim = 6;
      model.qk_rope_head_dim = 4;
      model.v_head_dim = 5;
    }
    const ParameterCounts counts = parameter_counts(model);
    REQUIRE(counts.total() == static_cast<double>(sum_of_parameters(model)));
    CHECK(parameter_count(model) == sum_of_parameters(model));

    // And so does what one tensor rank holds of each layer.
    for (const LayerSpec& layer : layers_of(model)) {
      // The first decoder block has the final norm of the encoder, which is counted with the head.
      const bool has_two_norms = model.stack == Stack::kEncoderDecoder;
      if (has_two_norms && (opens_decoder(model, layer) || makes_loss(layer.kind))) continue;
      double held = 0;
      for (const ParameterSpec& parameter : parameters_of(model, layer)) {
        if (parameter.is_expert) continue;
        held += static_cast<double>(parameter.size()) /
                (parameter.split == TensorSplit::kReplicated ? 1.0
                 : parameter.split == TensorSplit::kKvHeads
                     ? static_cast<double>(std::min<int64_t>(4, model.num_kv_heads))
                     : 4.0);
      }
      INFO(layer.name);
      CHECK(parameters_of_layer(model, layer).of_rank(4, model.num_kv_heads) ==
            doctest::Approx(held));
    }
  }
}

TEST_CASE("layers with equal parameters have tensors of equal sizes, and the others have not") {
  const auto sizes_of = [](const ModelSpec& model, const LayerSpec& layer) {
    std::vector<std::pair<int64_t, int64_t>> sizes;
    for (const ParameterSpec& parameter : parameters_of(model, layer)) {
      sizes.emplace_back(parameter.rows, parameter.cols);
    }
    return sizes;
  };
  ModelSpec mixture = mixtral_8x7b();
  mixture.first_dense_layers = 1;
  for (const ModelSpec& model : {gpt2_124m(), t5(6, 512, 8, 64, 2048), mixture}) {
    const std::vector<LayerSpec> layers = layers_of(model);
    for (const LayerSpec& a : layers) {
      for (const LayerSpec& b : layers) {
        CAPTURE(a.name);
        CAPTURE(b.name);
        CHECK(have_equal_parameters(model, a, b) == (sizes_of(model, a) == sizes_of(model, b)));
      }
    }
  }
}

TEST_CASE("experts stand where Megatron's --moe-layer-freq puts them") {
  ModelSpec model = mixtral_8x7b();
  model.num_layers = 7;
  model.first_dense_layers = 1;
  model.moe_layer_period = 3;
  std::string pattern;
  for (int64_t i = 0; i < 7; ++i) pattern += has_experts(model, i) ? 'E' : '.';
  CHECK(pattern == ".E..E..");
  CHECK(parameter_counts(model).of(LayerKind::kMoeBlock).count == 2);
  CHECK(parameter_counts(model).of(LayerKind::kBlock).count == 5);
}

TEST_CASE("the vocabulary is padded to a multiple for every tensor rank") {
  ModelSpec model = gpt2_124m();
  CHECK(padded_vocab_rows(model, 8) == 50257);
  model.vocab_multiple_of = 128;
  CHECK(padded_vocab_rows(model) == 50304);
  CHECK(padded_vocab_rows(model, 8) == 51200);
}

TEST_CASE("dense blocks are one kind of layer, and a family's have exactly its attributes") {
  CHECK(layers_of(small_gpt2())[1].kind == LayerKind::kBlock);
  CHECK(layers_of(small_llama())[1].kind == LayerKind::kBlock);
  CHECK(has_blocks_of(small_gpt2(), ModelFamily::kGpt2));
  CHECK(has_blocks_of(small_llama(), ModelFamily::kLlama));
  ModelSpec biased = small_llama();
  biased.qkv_bias = true;
  CHECK_FALSE(has_blocks_of(biased, ModelFamily::kLlama));
  CHECK(layers_of(mixtral_8x7b())[1].kind == LayerKind::kMoeBlock);
  CHECK(layers_of(t5(2, 16, 2, 8, 32))[3].kind == LayerKind::kCrossBlock);
  CHECK(layers_of(t5(2, 16, 2, 8, 32))[3].name == "decoder_layers.0");
}
