#include "huggingface/huggingface_twin.h"

#include "smp/plan/base/check.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::huggingface {
namespace {

// Of models whose blocks are Llama's but for biases, norms of heads and the gate's activation.
Twin llama_twin_of(const ModelSpec& model) {
  const bool all_biases = model.qkv_bias == model.attention_output_bias;
  const bool windowed = model.sliding_window > 0;
  if (model.qk_norm) return all_biases && !model.mlp_bias && !windowed ? Twin::kQwen3 : Twin::kNone;
  if (!all_biases) {
    return model.qkv_bias && !model.mlp_bias && !windowed ? Twin::kQwen2 : Twin::kNone;
  }
  if (!windowed) return Twin::kLlama;
  return model.qkv_bias || model.mlp_bias ? Twin::kNone : Twin::kMistral;
}

bool has_blocks_of_phi(const ModelSpec& model) {
  return model.norm == NormKind::kLayerNorm && model.qkv_bias && model.attention_output_bias &&
         model.mlp_bias && model.head_bias && !model.qk_norm && model.parallel_residual &&
         model.shared_norm && !model.tied_embeddings && model::is_dense_decoder(model);
}

// Its dense MLP is ReLU, or gated by GELU (in its tanh form) or SiLU.
bool is_t5(const ModelSpec& model) {
  return model::is_dense_encoder_decoder(model) && model.norm == NormKind::kRmsNorm &&
         model.mlp != MlpKind::kGelu && model.num_kv_heads == model.num_heads && !model.qkv_bias &&
         !model.attention_output_bias && !model.mlp_bias && !model.head_bias && !model.qk_norm;
}

}  // namespace

Twin twin_of(const ModelSpec& model) {
  if (is_t5(model)) return Twin::kT5;
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  if (!is_gated(model.mlp)) {
    ModelSpec gelu = model;
    gelu.mlp = MlpKind::kGelu;  // both classes take another activation
    if (model.sliding_window > 0) return Twin::kNone;
    if (model::has_blocks_of(gelu, ModelFamily::kGpt2)) return Twin::kGpt2;
    return rotary && has_blocks_of_phi(model) ? Twin::kPhi : Twin::kNone;
  }
  ModelSpec plain = model;
  plain.mlp = MlpKind::kSwiglu;
  plain.qkv_bias = plain.attention_output_bias = plain.mlp_bias = plain.qk_norm = false;
  const bool turns_whole_heads = rotary && rotary_dim_of(model) == model.head_dim;
  return turns_whole_heads && model::has_blocks_of(plain, ModelFamily::kLlama)
             ? llama_twin_of(model)
             : Twin::kNone;
}

TwinNames names_of(Twin twin) {
  switch (twin) {
    case Twin::kGpt2: return {"GPT2LMHeadModel", "gpt2"};
    case Twin::kLlama: return {"LlamaForCausalLM", "llama"};
    case Twin::kMistral: return {"MistralForCausalLM", "mistral"};
    case Twin::kQwen2: return {"Qwen2ForCausalLM", "qwen2"};
    case Twin::kQwen3: return {"Qwen3ForCausalLM", "qwen3"};
    case Twin::kPhi: return {"PhiForCausalLM", "phi"};
    case Twin::kT5: return {"T5ForConditionalGeneration", "t5"};
    case Twin::kNone: return {"SmpForCausalLM", "smp"};
  }
  check_failed(__FILE__, __LINE__, "unknown twin");
}

}  // namespace smp::huggingface
