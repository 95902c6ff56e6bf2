#include "huggingface/huggingface_class.h"

#include "smp/plan/model/model_family.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::huggingface {
namespace {

using Class = HuggingFaceClass;

// For a model whose blocks differ from Llama's only in biases, norms of heads and the gate's
// activation.
Class llama_class_of(const ModelSpec& model) {
  const bool all_biases = model.qkv_bias == model.attention_output_bias;
  const bool windowed = model.sliding_window > 0;
  if (model.full_attention_period > 0 || model.chunked_windows) return Class::kNone;
  if (model.qk_norm)
    return all_biases && !model.mlp_bias && !windowed ? Class::kQwen3 : Class::kNone;
  if (!all_biases) {
    return model.qkv_bias && !model.mlp_bias && !windowed ? Class::kQwen2 : Class::kNone;
  }
  if (!windowed) return Class::kLlama;
  return model.qkv_bias || model.mlp_bias ? Class::kNone : Class::kMistral;
}

bool has_blocks_of_phi(const ModelSpec& model) {
  return model.norm == NormKind::kLayerNorm && model.qkv_bias && model.attention_output_bias &&
         model.mlp_bias && model.head_bias && !model.qk_norm && model.parallel_residual &&
         model.shared_norm && !model.tied_embeddings && model::is_dense_decoder(model);
}

// T5's dense MLP is ReLU, or gated by GELU (in its tanh form) or SiLU.
bool is_t5(const ModelSpec& model) {
  return model::is_dense_encoder_decoder(model) && model.norm == NormKind::kRmsNorm &&
         model.mlp != MlpKind::kGelu && model.num_kv_heads == model.num_heads && !model.qkv_bias &&
         !model.attention_output_bias && !model.mlp_bias && !model.head_bias && !model.qk_norm;
}

}  // namespace

HuggingFaceClass class_of(const ModelSpec& model) {
  if (is_t5(model)) return Class::kT5;
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  if (!is_gated(model.mlp)) {
    ModelSpec gelu = model;
    gelu.mlp = MlpKind::kGelu;  // both classes take another activation
    if (model.sliding_window > 0) return Class::kNone;
    if (model::has_blocks_of(gelu, ModelFamily::kGpt2)) return Class::kGpt2;
    return rotary && has_blocks_of_phi(model) ? Class::kPhi : Class::kNone;
  }
  ModelSpec plain = model;
  plain.mlp = MlpKind::kSwiglu;
  plain.qkv_bias = plain.attention_output_bias = plain.mlp_bias = plain.qk_norm = false;
  const bool turns_whole_heads = rotary && rotary_dim_of(model) == model.head_dim;
  return turns_whole_heads && model::has_blocks_of(plain, ModelFamily::kLlama)
             ? llama_class_of(model)
             : Class::kNone;
}

}  // namespace smp::huggingface
