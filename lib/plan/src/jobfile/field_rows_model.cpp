#include "jobfile/field_rows.h"
#include "smp/plan/model/operators.h"

// The keys of the section model.
namespace smp::jobfile {
namespace {

bool is_rotary(const JobSpec& job) { return job.model.position_embedding == PositionKind::kRotary; }
bool is_stretched(const JobSpec& job) {
  return is_rotary(job) && job.model.rope_scaling != RopeScaling::kNone;
}
bool is_yarn(const JobSpec& job) { return job.model.rope_scaling == RopeScaling::kYarn; }
bool is_longrope(const JobSpec& job) { return job.model.rope_scaling == RopeScaling::kLongRope; }
bool has_original_positions(const JobSpec& job) {
  return job.model.rope_scaling == RopeScaling::kLlama3 || is_yarn(job) || is_longrope(job);
}
bool has_attention_factor(const JobSpec& job) { return is_yarn(job) || is_longrope(job); }
bool is_llama3(const JobSpec& job) {
  return is_rotary(job) && job.model.rope_scaling == RopeScaling::kLlama3;
}
bool has_gelu(const JobSpec& job) {
  return job.model.mlp == MlpKind::kGelu || job.model.mlp == MlpKind::kGeglu;
}
bool has_decoder_beside(const JobSpec& job) { return job.model.stack == Stack::kEncoderDecoder; }
bool has_gate(const JobSpec& job) { return is_gated(job.model.mlp); }
bool has_qk_norm(const JobSpec& job) { return job.model.qk_norm; }
bool has_window(const JobSpec& job) { return job.model.sliding_window > 0; }

const Condition kRotary = {is_rotary, "model.position_embedding", "position_embedding: rotary"};
const Condition kStretched = {is_stretched, "model.rope_scaling", "rope_scaling"};
const Condition kYarnRope = {is_yarn, "model.rope_scaling", "rope_scaling: yarn"};
const Condition kRopeWithOriginal = {has_original_positions, "model.rope_scaling",
                                     "rope_scaling: llama3, yarn or longrope"};
const Condition kRopeWithFactor = {has_attention_factor, "model.rope_scaling",
                                   "rope_scaling: yarn or longrope"};
const Condition kLongRope = {is_longrope, "model.rope_scaling", "rope_scaling: longrope"};
const Condition kLlama3Rope = {is_llama3, "model.rope_scaling", "rope_scaling: llama3"};
const Condition kHasGelu = {has_gelu, "model.mlp", "mlp: gelu or geglu"};
const Condition kHasGate = {has_gate, "model.mlp", "mlp: swiglu or geglu"};
const Condition kHasQkNorm = {has_qk_norm, "model.qk_norm", "qk_norm: true"};
const Condition kEncoderDecoder = {has_decoder_beside, "model.stack", "stack: encoder_decoder"};
const Condition kWindowed = {has_window, "model.sliding_window", "sliding_window"};

bool is_transformer(const JobSpec& job) { return !model::is_list(job.model); }
bool has_layer_list(const JobSpec& job) { return model::is_list(job.model); }

}  // namespace

const Condition kTransformerModel = {is_transformer, "model.layers",
                                     "a transformer, but model.layers is a list of layers"};
const Condition kLayerList = {has_layer_list, "model.layers", "layers"};

namespace {

void add_list_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kModel,
       "layers",
       SMP_AT(model.operators),
       "the model as a list of layers, in place of all other keys: see adding-a-layer.md",
       {.also = {"sequential", "modules"}}},
      {kModel,
       "loss",
       SMP_AT(model.loss),
       "loss of the last layer's output, which has one number for each class",
       {.words = {"cross_entropy"}, .condition = kLayerList}},
      {kInput,
       "channels",
       SMP_AT(model.input_channels),
       "channels of an image",
       {.required = true, .min = 1, .max = kMostPixels, .condition = kLayerList}},
      {kInput,
       "height",
       SMP_AT(model.input_height),
       "pixels",
       {.required = true, .min = 1, .max = kMostPixels, .condition = kLayerList}},
      {kInput,
       "width",
       SMP_AT(model.input_width),
       "pixels",
       {.required = true, .min = 1, .max = kMostPixels, .condition = kLayerList}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace

void add_model_fields(std::vector<Field>& out) {
  out.push_back({kModel, "name", SMP_AT(model.name), "for people"});
  std::vector<Field> fields = {
      {kModel, "hf_config", SMP_AT(model.hf_config),
       "a Hugging Face config.json that gives the sizes, relative to this file, or the name of a "
       "published model's repository; keys beside it override it"},
      {kModel,
       "family",
       SMP_AT(model.family),
       "defaults of the attributes that follow: gpt2 (learned positions, LayerNorm, GELU, biases), "
       "llama (RoPE, RMSNorm, SwiGLU, no biases, grouped KV heads) or transformer (none)",
       {.also = {"model_type"}}},
      {kModel, "stack", SMP_AT(model.stack),
       "decoder (causal), encoder (BERT), or both (T5, where num_layers counts the encoder's "
       "layers)"},
      {kModel,
       "mlp",
       SMP_AT(model.mlp),
       "activation of the feed-forward layer; swiglu and geglu have a gate",
       {.required_by = {kTransformer},
        .computed = "gpt2: gelu; llama: swiglu",
        .also = {"hidden_act", "activation_function", "hidden_activation"}}},
      {kModel,
       "gelu",
       SMP_AT(model.gelu),
       "form of GELU: tanh (GPT-2, Phi), erf = exact (GPT-NeoX), or sigmoid = x * sigmoid(1.702 x) "
       "(gpt-oss)",
       {.condition = kHasGelu}},
      {kModel,
       "glu_limit",
       SMP_AT(model.glu_limit),
       "limits the two factors of a gated feed-forward layer: the gate from above, the other from "
       "both sides (gpt-oss: 7); 0 = no limit",
       {.max = 1e6,
        .condition = kHasGate,
        .also = {"swiglu_limit", "activation_func_clamp_value"}}},
      {kModel,
       "glu_offset",
       SMP_AT(model.glu_offset),
       "added to the factor beside the gate (gpt-oss: 1)",
       {.max = 1000, .condition = kHasGate, .also = {"glu_linear_offset"}}},
      {kModel,
       "norm",
       SMP_AT(model.norm),
       "layernorm has a bias, rmsnorm none",
       {.required_by = {kTransformer},
        .computed = "gpt2: layernorm; llama: rmsnorm",
        .also = {"normalization", "norm_type"}}},
      {kModel, "norm_placement", SMP_AT(model.norm_placement),
       "norms of attention and of the feed-forward layer: before each, after each (OLMo 2), or "
       "both "
       "(Gemma 2 and 3)"},
      {kModel,
       "position_embedding",
       SMP_AT(model.position_embedding),
       "kind of position embedding; relative = T5's: 32 buckets for each head, attention scores "
       "without scaling",
       {.required_by = {kTransformer},
        .computed = "gpt2: learned; llama: rotary",
        .also = {"position_embedding_type"}}},
      {kModel,
       "qkv_bias",
       SMP_AT(model.qkv_bias),
       "biases of the queries, keys and values",
       {.computed = "gpt2: true; else false", .also = {"add_qkv_bias", "attention_bias"}}},
      {kModel,
       "attention_output_bias",
       SMP_AT(model.attention_output_bias),
       "bias of the projection after attention",
       {.computed = "gpt2: true; else false"}},
      {kModel,
       "mlp_bias",
       SMP_AT(model.mlp_bias),
       "biases of the feed-forward layer's matrices",
       {.computed = "gpt2: true; else false", .also = {"add_bias_linear"}}},
      {kModel,
       "head_bias",
       SMP_AT(model.head_bias),
       "bias of the projection to the vocabulary",
       {.also = {"lm_head_bias"}}},
      {kModel,
       "qk_norm",
       SMP_AT(model.qk_norm),
       "norms of queries and keys (Qwen3)",
       {.also = {"qk_layernorm"}}},
      {kModel,
       "qk_norm_over",
       SMP_AT(model.qk_norm_over),
       "what these norms span: each `head` (Qwen3), or `all_heads` together (OLMo 2, OLMoE)",
       {.condition = kHasQkNorm}},
      {kModel, "attention_sinks", SMP_AT(model.attention_sinks),
       "a learnt score of each head joins the softmax of a query's scores, and has no value "
       "(gpt-oss)"},
      {kModel,
       "parallel_residual",
       SMP_AT(model.parallel_residual),
       "attention and feed-forward layer read the same input (GPT-NeoX, Phi)",
       {.also = {"use_parallel_residual", "parallel_attn"}}},
      {kModel, "shared_norm", SMP_AT(model.shared_norm),
       "one norm serves both attention and feed-forward layer (Phi); needs parallel_residual"},
      {kModel,
       "num_layers",
       SMP_AT(model.num_layers),
       "transformer layers; with an encoder and a decoder, the encoder's",
       {.required = true,
        .min = 1,
        .max = kMostLayers,
        .also = {"n_layer", "n_layers", "layers", "num_hidden_layers", "encoder_num_layers"}}},
      {kModel,
       "decoder_layers",
       SMP_AT(model.decoder_layers),
       "layers of the decoder of an encoder_decoder",
       {.min = 1,
        .max = kMostLayers,
        .computed = "num_layers",
        .condition = kEncoderDecoder,
        .also = {"num_decoder_layers", "decoder_num_layers"}}},
      {kModel,
       "hidden_size",
       SMP_AT(model.hidden_size),
       "width of the residual stream",
       {.required = true, .min = 1, .max = kMostWidth, .also = {"n_embd", "d_model", "dim"}}},
      {kModel,
       "num_heads",
       SMP_AT(model.num_heads),
       "attention heads",
       {.required = true,
        .min = 1,
        .max = kMostWidth,
        .also = {"n_head", "n_heads", "num_attention_heads"}}},
      {kModel,
       "num_kv_heads",
       SMP_AT(model.num_kv_heads),
       "key and value heads; fewer than num_heads is grouped-query attention (llama)",
       {.min = 1,
        .max = kMostWidth,
        .computed = "num_heads",
        .also = {"n_kv_heads", "num_key_value_heads", "num_query_groups"}}},
      {kModel,
       "head_dim",
       SMP_AT(model.head_dim),
       "width of one head",
       {.min = 1,
        .max = kMostWidth,
        .computed = "hidden_size / num_heads",
        .also = {"d_kv", "kv_channels"}}},
      {kModel,
       "ffn_hidden_size",
       SMP_AT(model.ffn_hidden_size),
       "width inside the feed-forward layer",
       {.required_by = {kLlama, kTransformer},
        .min = 1,
        .max = kMostInner,
        .computed = "gpt2: 4 x hidden_size; else required",
        .also = {"intermediate_size", "n_inner", "d_ff"}}},
      {kModel,
       "vocab_size",
       SMP_AT(model.vocab_size),
       "number of tokens in the vocabulary; text is read as bytes, which are 256 tokens",
       {.required = true, .min = 2, .max = kMostRows}},
      {kModel,
       "vocab_multiple_of",
       SMP_AT(model.vocab_multiple_of),
       "rows of the vocabulary's matrices are padded to a multiple of this (Megatron: 128)",
       {.min = 1,
        .max = 1 << 20,
        .also = {"make_vocab_size_divisible_by", "pad_vocab_size_multiple_of"}}},
      {kModel,
       "max_positions",
       SMP_AT(model.max_positions),
       "rows of a learned position table; with other positions the longest sequence",
       {.min = 1,
        .max = kMostRows,
        .computed = "gpt2: 1024; else training.sequence_length, else 4096",
        .also = {"n_positions", "max_position_embeddings"}}},
      {kModel,
       "tied_embeddings",
       SMP_AT(model.tied_embeddings),
       "the head uses the token embedding's weights",
       {.computed = "gpt2: true; else false", .also = {"tie_word_embeddings"}}},
      {kModel,
       "norm_epsilon",
       SMP_AT(model.norm_epsilon),
       "added to the variance in each norm",
       {.max = 1,
        .min_excluded = true,
        .also = {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"}}},
      {kModel,
       "rope_theta",
       SMP_AT(model.rope_theta),
       "base of the rotary embedding",
       {.min_excluded = true, .condition = kRotary, .also = {"rotary_base"}}},
      {kModel,
       "rotary_dim",
       SMP_AT(model.rotary_dim),
       "first elements of each head that the rotary embedding rotates (GPT-NeoX, Phi); 0 = all",
       {.max = kMostWidth, .condition = kRotary}},
      {kModel,
       "rope_scaling",
       SMP_AT(model.rope_scaling),
       "scaling of the rotary frequencies for longer sequences",
       {.condition = kRotary}},
      {kModel,
       "rope_scaling_factor",
       SMP_AT(model.rope_scaling_factor),
       "factor of the scaling",
       {.min = 1, .condition = kStretched}},
      {kModel,
       "rope_low_freq_factor",
       SMP_AT(model.rope_low_freq_factor),
       "wavelengths above rope_original_positions / this are scaled by the whole factor",
       {.min_excluded = true, .condition = kLlama3Rope, .also = {"low_freq_factor"}}},
      {kModel,
       "rope_high_freq_factor",
       SMP_AT(model.rope_high_freq_factor),
       "wavelengths below rope_original_positions / this are not scaled",
       {.min_excluded = true, .condition = kLlama3Rope, .also = {"high_freq_factor"}}},
      {kModel,
       "rope_original_positions",
       SMP_AT(model.rope_original_positions),
       "longest sequence before the scaling",
       {.min = 1,
        .max = kMostRows,
        .computed = "llama3: 8192; yarn and longrope: max_positions / rope_scaling_factor",
        .condition = kRopeWithOriginal,
        .also = {"original_max_position_embeddings"}}},
      {kModel,
       "rope_short_factors",
       SMP_AT(model.rope_short_factors),
       "longrope: what the frequency of each pair of elements is divided by, where sequences are "
       "no "
       "longer than rope_original_positions",
       {.min_excluded = true,
        .example = "[1.05, 1.05, 1.2]",
        .condition = kLongRope,
        .also = {"short_factor"}}},
      {kModel,
       "rope_long_factors",
       SMP_AT(model.rope_long_factors),
       "longrope: the same where sequences are longer",
       {.min_excluded = true,
        .example = "[1.08, 1.11, 1.14]",
        .condition = kLongRope,
        .also = {"long_factor"}}},
      {kModel,
       "rope_beta_fast",
       SMP_AT(model.rope_beta_fast),
       "yarn: elements that turn more often than this over rope_original_positions are not scaled",
       {.min_excluded = true, .condition = kYarnRope, .also = {"beta_fast"}}},
      {kModel,
       "rope_beta_slow",
       SMP_AT(model.rope_beta_slow),
       "yarn: those that turn less often than this are scaled by the whole factor",
       {.min_excluded = true, .condition = kYarnRope, .also = {"beta_slow"}}},
      {kModel,
       "rope_truncate",
       SMP_AT(model.rope_truncate),
       "yarn: the elements between rope_beta_fast and rope_beta_slow end at whole pairs; gpt-oss: "
       "false",
       {.condition = kYarnRope, .also = {"truncate"}}},
      {kModel,
       "rope_attention_factor",
       SMP_AT(model.rope_attention_factor),
       "yarn and longrope: factor of sines and cosines; 0 = it follows. yarn: m(rope_mscale) / "
       "m(rope_mscale_all_dim) if both are given, else m(1), where m(x) = 0.1 x "
       "ln(rope_scaling_factor) + 1; longrope: the root of 1 + ln(rope_scaling_factor) / "
       "ln(rope_original_positions)",
       {.max = 1000, .condition = kRopeWithFactor, .also = {"attention_factor"}}},
      {kModel,
       "rope_mscale",
       SMP_AT(model.rope_mscale),
       "yarn: see rope_attention_factor (DeepSeek); 0 = not given",
       {.max = 1000, .condition = kYarnRope, .also = {"mscale"}}},
      {kModel,
       "rope_mscale_all_dim",
       SMP_AT(model.rope_mscale_all_dim),
       "yarn: see rope_attention_factor; with latent attention the scores are multiplied by the "
       "square of its m (DeepSeek); 0 = not given",
       {.max = 1000, .condition = kYarnRope, .also = {"mscale_all_dim"}}},
      {kModel,
       "sliding_window",
       SMP_AT(model.sliding_window),
       "keys that a query sees, its own included (Mistral); 0 = all before it",
       {.max = kMostRows}},
      {kModel,
       "chunked_windows",
       SMP_AT(model.chunked_windows),
       "sequences are cut into chunks of sliding_window tokens, and a query sees its own chunk "
       "(Llama 4)",
       {.condition = kWindowed}},
      {kModel,
       "full_attention_period",
       SMP_AT(model.full_attention_period),
       "every n-th layer sees all keys, the others those of their window (Gemma: 2 and 6); 0 = all "
       "layers have the window",
       {.max = kMostLayers, .condition = kWindowed, .also = {"sliding_window_pattern"}}},
      {kModel,
       "initializer_range",
       SMP_AT(model.initializer_range),
       "standard deviation of the first weights",
       {.max = 10}},
      {kModel,
       "attention_dropout",
       SMP_AT(model.attention_dropout),
       "dropout on the softmax weights",
       {.max = 1, .max_excluded = true, .also = {"attn_pdrop", "attention_probs_dropout_prob"}}},
      {kModel,
       "hidden_dropout",
       SMP_AT(model.hidden_dropout),
       "dropout on each addition to the residual stream",
       {.max = 1,
        .max_excluded = true,
        .also = {"resid_pdrop", "hidden_dropout_prob", "dropout_rate"}}},
  };
  add_expert_fields(fields);
  add_latent_fields(fields);
  add_hybrid_fields(fields);
  for (Field& field : fields) {
    if (field.rule.condition.holds == nullptr) field.rule.condition = kTransformerModel;
  }
  out.insert(out.end(), fields.begin(), fields.end());
  add_list_fields(out);
}

}  // namespace smp::jobfile
