#include <fmt/format.h>

#include "parity/layouts.h"
#include "parity/random.h"
#include "plan/list_samples.h"
#include "smp/plan/model/model_family.h"

// The models of the parity tests, and what they train on.
namespace smp::parity {

ModelSpec gpt2_model() {
  ModelSpec model;
  model.name = "gpt2-like";
  model::set_family(model, ModelFamily::kGpt2);
  model.num_layers = 5;
  model.hidden_size = 48;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  model.head_dim = 12;
  model.ffn_hidden_size = 192;
  model.vocab_size = 259;
  model.max_positions = 40;
  model.tied_embeddings = true;
  return model;
}

ModelSpec gpt2_untied_model() {
  ModelSpec model = gpt2_model();
  model.name = "gpt2-like-untied";
  model.tied_embeddings = false;
  return model;
}

ModelSpec llama_model() {
  ModelSpec model = gpt2_model();
  model.name = "llama-like";
  model::set_family(model, ModelFamily::kLlama);
  model.num_kv_heads = 2;
  model.ffn_hidden_size = 132;
  model.vocab_size = 257;
  model.tied_embeddings = false;
  return model;
}

ModelSpec llama_tied_model() {
  ModelSpec model = llama_model();
  model.name = "llama-like-tied";
  model.tied_embeddings = true;
  return model;
}

ModelSpec qwen2_model() {
  ModelSpec model = llama_model();
  model.name = "qwen2-like";
  model.qkv_bias = true;
  return model;
}

ModelSpec qwen3_model() {
  ModelSpec model = llama_model();
  model.name = "qwen3-like";
  model.qk_norm = true;
  model.head_dim = 10;
  return model;
}

ModelSpec phi_model() {
  ModelSpec model = gpt2_untied_model();
  model.name = "phi-like";
  model.position_embedding = PositionKind::kRotary;
  model.head_bias = model.parallel_residual = model.shared_norm = true;
  return model;
}

ModelSpec t5_model() {
  ModelSpec model = gpt2_model();
  model.name = "t5-like";
  model.stack = Stack::kEncoderDecoder;
  model.num_layers = 2;
  model.decoder_layers = 3;
  model.norm = NormKind::kRmsNorm;
  model.mlp = MlpKind::kRelu;
  model.position_embedding = PositionKind::kRelative;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
  model.head_dim = 10;
  return model;
}

ModelSpec t5_gated_model() {
  ModelSpec model = t5_model();
  model.name = "t5-1.1-like";
  model.mlp = MlpKind::kGeglu;
  model.ffn_hidden_size = 132;
  model.tied_embeddings = false;
  return model;
}

ModelSpec mixtral_model() {
  ModelSpec model = llama_model();
  model.name = "mixtral-like";
  model.num_experts = 5;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = 60;
  model.router_balance_loss = 0.02;
  model.router_balance_over = BalanceOver::kSequence;
  model.router_z_loss = 0.001;
  return model;
}

ModelSpec olmoe_model() {
  ModelSpec model = mixtral_model();
  model.name = "olmoe-like";
  model.num_experts = 8;
  model.qk_norm = true;
  model.qk_norm_over = QkNormOver::kAllHeads;
  model.normalize_expert_weights = false;
  return model;
}

ModelSpec gpt_oss_model() {
  ModelSpec model = mixtral_model();
  model.name = "gpt-oss-like";
  model.num_experts = 4;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.attention_sinks = model.router_bias = true;
  model.sliding_window = 5;
  model.full_attention_period = 2;
  model.mlp = MlpKind::kGeglu;
  model.gelu = GeluKind::kSigmoid;
  model.glu_limit = 0.05;  // weights are small: some factors are beyond it
  model.glu_offset = 1;
  return model;
}

// As DeepSeek-V2-Lite: queries have no latent.
ModelSpec deepseek_lite_model() {
  ModelSpec model = mixtral_model();
  model.name = "deepseek-lite-like";
  model.num_kv_heads = model.num_heads;
  model.kv_lora_rank = 20;
  model.qk_head_dim = 6;
  model.qk_rope_head_dim = 4;
  model.v_head_dim = 7;
  model.head_dim = model.qk_head_dim + model.qk_rope_head_dim;
  model.first_dense_layers = 1;
  model.num_experts = 6;
  model.router = RouterKind::kSigmoid;
  model.routed_scaling_factor = 2.5;
  model.router_correction_bias = true;
  model.router_correction_rate = 0.01;
  model.expert_groups = 3;
  model.expert_groups_per_token = 2;
  model.shared_expert_ffn_hidden_size = 44;
  model.shared_expert_gate = true;
  return model;
}

ModelSpec deepseek_model() {
  ModelSpec model = deepseek_lite_model();
  model.name = "deepseek-like";
  model.q_lora_rank = 24;
  return model;
}

// With a layer that predicts a further token.
ModelSpec deepseek_v3_model() {
  ModelSpec model = deepseek_model();
  model.name = "deepseek-v3-like";
  model.num_mtp_layers = 1;
  model.mtp_loss_factor = 0.3;
  return model;
}

ModelSpec wider(ModelSpec model) {
  model.name += "-wide";
  model.hidden_size *= 2;
  model.num_heads *= 2;
  model.num_kv_heads *= 2;
  model.ffn_hidden_size *= 2;
  return model;
}

ModelSpec image_model() { return small_list(); }

std::string sample_text(int64_t bytes) {
  static const char* const kWords[] = {"the ", "model ",  "of ",  "a ",      "layer ",    "reads ",
                                       "its ", "tokens ", "and ", "writes ", "numbers.\n"};
  std::string text;
  Random random;
  while (static_cast<int64_t>(text.size()) < bytes) text += kWords[random.below(11)];
  text.resize(static_cast<size_t>(bytes));
  return text;
}

std::string sample_images(const ModelSpec& model, int64_t count) {
  const int64_t numbers = model::elements_of(model::input_of(model));
  std::string text;
  for (int64_t image = 0; image < count; ++image) {
    const int64_t label = image % model.vocab_size;
    for (int64_t i = 0; i < numbers; ++i) {
      text += fmt::format("{},", (i * (label + 2) * 37 + image * 11) % 256);
    }
    text += fmt::format("{}\n", label);
  }
  return text;
}

std::vector<uint16_t> sample_tokens(int64_t count) {
  Random random;
  std::vector<uint16_t> tokens(static_cast<size_t>(count));
  int left = 0;  // of the document
  for (uint16_t& token : tokens) {
    token = static_cast<uint16_t>(left == 0 ? kEndOfDocument : 1 + random.below(96));
    left = left == 0 ? random.below(80) : left - 1;
  }
  return tokens;
}

std::vector<uint8_t> sample_mask(int64_t count) {
  Random random;
  std::vector<uint8_t> mask(static_cast<size_t>(count));
  int left = 0;  // of the run
  bool counts = false;
  for (uint8_t& one : mask) {
    if (left == 0) {
      left = 1 + random.below(80);
      counts = !counts;
    }
    one = counts ? 1 : 0;
    --left;
  }
  return mask;
}

std::string sample_data(const ModelSpec& model) {
  return model::is_list(model) ? sample_images(model, 2 * model.vocab_size) : sample_text(20000);
}

}  // namespace smp::parity
