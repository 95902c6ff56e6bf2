#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "huggingface/huggingface_types.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/model/model_family.h"

namespace smp {
namespace {

ModelSpec small_model_of(ModelFamily family) {
  ModelSpec model;
  model::set_family(model, family);
  const bool gpt2 = family == ModelFamily::kGpt2;
  model.num_layers = 2;
  model.hidden_size = 16;
  model.num_heads = 4;
  model.num_kv_heads = gpt2 ? 4 : 2;
  model.head_dim = 4;
  model.ffn_hidden_size = gpt2 ? 64 : 48;
  model.vocab_size = 259;
  model.max_positions = 32;
  model.tied_embeddings = gpt2;
  return model;
}

TEST_CASE("a config of another model is refused by key") {
  const auto error = [](ModelFamily family, const text::OrderedJson& changes) {
    const ModelSpec model = small_model_of(family);
    text::OrderedJson config =
        text::OrderedJson::parse(huggingface::huggingface_config(model, DType::kF32));
    config.update(changes);
    return error_of(
        [&] { huggingface::check_huggingface_config("config.json", config.dump(), model); });
  };
  const auto gpt2 = [&](const text::OrderedJson& changes) {
    return error(ModelFamily::kGpt2, changes);
  };
  const auto llama = [&](const text::OrderedJson& changes) {
    return error(ModelFamily::kLlama, changes);
  };
  CHECK(gpt2(text::OrderedJson::object()) == "no error");
  CHECK(gpt2({{"n_inner", nullptr}, {"activation_function", nullptr}}) == "no error");
  CHECK(gpt2({{"architectures", "X"}, {"bos_token_id", 5}, {"some_key", 1}}) == "no error");
  CHECK(gpt2({{"n_head", 2}}) == "config.json: n_head is 2, but this job's model has 4");
  CHECK(gpt2({{"vocab_size", nullptr}}) == "config.json: 'vocab_size' is missing");
  CHECK(gpt2({{"model_type", "llama"}}) ==
        "config.json: model_type is \"llama\", but this job's model has \"gpt2\"");
  CHECK(gpt2({{"activation_function", "relu"}}) ==
        "config.json: activation_function is \"relu\", but this job's model has \"gelu_new\"");
  CHECK(llama(text::OrderedJson::object()) == "no error");
  CHECK(llama({{"rope_scaling", nullptr}, {"max_position_embeddings", 4096}}) == "no error");
  CHECK(llama({{"max_position_embeddings", 8}})
            .starts_with("config.json: max_position_embeddings is 8, but this job's model has "));
  CHECK(llama({{"rope_theta", 5e5}, {"rope_parameters", nullptr}}) ==
        "config.json: rope_theta of the rotary embedding is 500000.0, but this job's model has "
        "10000.0");
  CHECK(llama({{"rope_parameters", {{"rope_theta", 5e5}}}}) ==
        "config.json: keys disagree: rope_parameters.rope_theta is 500000.0, but rope_theta is "
        "10000.0");
  CHECK(llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}) ==
        "config.json: keys disagree: rope_scaling.type is \"linear\", but "
        "rope_parameters.rope_type is \"default\"");
  CHECK(llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
               {"rope_parameters", nullptr}}) ==
        "config.json: rope_type of the rotary embedding is \"linear\", but this job's model has "
        "\"default\"");
  CHECK(llama({{"partial_rotary_factor", 0.5}}) ==
        "config.json: partial_rotary_factor is 0.5, but this job's model rotates 4 of a head's 4 "
        "elements (model.rotary_dim)");
  CHECK(gpt2({{"activation_function", "gelu_pytorch_tanh"}}) == "no error");
  CHECK(gpt2({{"activation_function", "gelu"}}) ==
        "config.json: activation_function is \"gelu\", but this job's model has \"gelu_new\"");
  CHECK(gpt2({{"model_type", nullptr}}) == "config.json: 'model_type' is missing");
  // Mistral is Llama with a window.
  CHECK(llama({{"model_type", "mistral"}, {"sliding_window", nullptr}}) == "no error");
  CHECK(llama({{"model_type", "mistral"}}) == "no error");  // 4096 is longer than any sequence
  CHECK(llama({{"model_type", "mistral"}, {"sliding_window", 8}}) ==
        "config.json: sliding_window is 8, but this job's model has 0 (0 = none; a window of at "
        "least model.max_positions = none)");
  CHECK(llama({{"use_sliding_window", true}, {"sliding_window", 8}}) ==
        "config.json: sliding_window is 8, but this job's model has 0 (0 = none; a window of at "
        "least model.max_positions = none)");
  // A stretched model: every number counts.
  ModelSpec stretched = small_model_of(ModelFamily::kLlama);
  stretched.rope_scaling = RopeScaling::kLlama3;
  stretched.sliding_window = 16;
  text::OrderedJson config =
      text::OrderedJson::parse(huggingface::huggingface_config(stretched, DType::kF32));
  const auto own = [&] {
    return error_of([&] { huggingface::check_huggingface_config("c", config.dump(), stretched); });
  };
  CHECK(config.at("model_type") == "mistral");
  CHECK(own() == "no error");
  config["rope_scaling"]["high_freq_factor"] = 5;
  config.erase("rope_parameters");
  CHECK(own() == "c: high_freq_factor of the rotary embedding is 5, but this job's model has 4.0");
  CHECK(error_of([] { huggingface::check_huggingface_config("c", "7", ModelSpec{}); }) ==
        "c: expected a JSON object");
}

// The row of the table, the writer and the check agree: what transformers would take for absent
// keys is accepted when the model has it, and refused when it has not.
TEST_CASE("an absent key has transformers' default, and a null size none") {
  ModelSpec model = small_model_of(ModelFamily::kLlama);
  const huggingface::HuggingFaceType& llama =
      huggingface::type_of(huggingface::HuggingFaceClass::kLlama);
  model.hidden_size = llama.sizes.hidden;
  model.num_layers = llama.sizes.layers;
  model.num_heads = model.num_kv_heads = llama.sizes.heads;
  model.head_dim = model.hidden_size / model.num_heads;
  model.ffn_hidden_size = llama.sizes.ffn;
  model.vocab_size = llama.sizes.vocab;
  model.max_positions = llama.sizes.positions;
  model.norm_epsilon = llama.defaults.epsilon;
  const auto error = [&](const std::string& text) {
    return error_of([&] { huggingface::check_huggingface_config("c", text, model); });
  };
  CHECK(error(R"({"model_type": "llama"})") == "no error");
  CHECK(error(R"({"model_type": "llama", "num_key_value_heads": null})") == "no error");
  CHECK(error(R"({"model_type": "llama", "hidden_size": null})") == "c: 'hidden_size' is missing");
  model.vocab_size = 259;
  CHECK(error(R"({"model_type": "llama"})") ==
        "c: vocab_size is 32000, but this job's model has 259");
  CHECK(error(R"({"model_type": "llama", "vocab_size": 259, "num_attention_heads": "32"})") ==
        "c: num_attention_heads is \"32\", but this job's model has 32");
}

TEST_CASE("keys of OLMoE and gpt-oss decide what a model computes") {
  ModelSpec olmoe = small_model_of(ModelFamily::kLlama);
  olmoe.qk_norm = true;
  olmoe.qk_norm_over = QkNormOver::kAllHeads;
  olmoe.num_experts = 4;
  olmoe.experts_per_token = 2;
  olmoe.expert_ffn_hidden_size = 12;
  olmoe.normalize_expert_weights = false;
  ModelSpec oss = olmoe;
  oss.qk_norm = false;
  oss.normalize_expert_weights = true;
  oss.mlp = MlpKind::kGeglu;
  oss.gelu = GeluKind::kSigmoid;
  oss.glu_limit = huggingface::kGptOssLimit;
  oss.glu_offset = 1;
  oss.attention_sinks = oss.router_bias = true;
  oss.qkv_bias = oss.attention_output_bias = oss.mlp_bias = true;
  oss.sliding_window = 8;
  oss.full_attention_period = 2;
  const auto error = [](const ModelSpec& model, const text::OrderedJson& changes,
                        const std::vector<std::string>& absent = {}) {
    text::OrderedJson config =
        text::OrderedJson::parse(huggingface::huggingface_config(model, DType::kF32));
    config.update(changes);
    for (const std::string& key : absent) config.erase(key);
    return error_of([&] { huggingface::check_huggingface_config("c", config.dump(), model); });
  };
  CHECK(error(olmoe, text::OrderedJson::object()) == "no error");
  CHECK(error(olmoe, text::OrderedJson::object(), {"clip_qkv", "norm_topk_prob"}) == "no error");
  CHECK(error(olmoe, {{"clip_qkv", 8.0}}) == "c: clip_qkv is 8.0, but this job's model has null");
  CHECK(error(olmoe, {{"norm_topk_prob", true}}) ==
        "c: norm_topk_prob is true, but this job's model has false");
  CHECK(error(oss, text::OrderedJson::object()) == "no error");
  CHECK(error(oss, text::OrderedJson::object(), {"layer_types", "swiglu_limit"}) == "no error");
  CHECK(error(oss, {{"swiglu_limit", 5.0}}) ==
        "c: swiglu_limit is 5.0, but this job's model has 7.0");
  CHECK(error(oss, {{"layer_types", {"full_attention", "sliding_attention"}}}) ==
        "c: layer_types is [\"full_attention\",\"sliding_attention\"], but this job's model has "
        "[\"sliding_attention\",\"full_attention\"]");
  CHECK(error(oss, {{"sliding_window", 128}}) ==
        "c: sliding_window is 128, but this job's model has 8 (0 = none; a window of at least "
        "model.max_positions = none)");
  CHECK(error(oss, text::OrderedJson::object(), {"rope_parameters"}) ==
        "c: 'rope_scaling' is missing");
  CHECK(error(oss, {{"rope_scaling", nullptr}}, {"rope_parameters"}) == "no error");
}

TEST_CASE("of yarn every number must be the model's, and positions may be what it reaches") {
  ModelSpec model = small_model_of(ModelFamily::kLlama);
  model.rope_scaling = RopeScaling::kYarn;
  model.rope_scaling_factor = 4;
  model.rope_original_positions = 16;
  model.max_positions = 64;
  const auto error = [&](const text::OrderedJson& rope, int64_t positions = 64) {
    text::OrderedJson config =
        text::OrderedJson::parse(huggingface::huggingface_config(model, DType::kF32));
    config.erase("rope_parameters");
    config["rope_scaling"] = {
        {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    config["rope_scaling"].update(rope);
    config["max_position_embeddings"] = positions;
    return error_of(
        [&] { huggingface::check_huggingface_config("config.json", config.dump(), model); });
  };
  CHECK(error(text::OrderedJson::object()) == "no error");
  CHECK(error(text::OrderedJson::object(), 20) == "no error");  // the file's own positions
  CHECK(error({{"mscale_all_dim", 1.0}}) ==
        "config.json: mscale_all_dim of the rotary embedding is 1.0, but this job's model has 0");
  CHECK(error({{"truncate", false}}) ==
        "config.json: truncate of the rotary embedding is false, but this job's model has true");
  CHECK(error({{"beta_fast", 16}}).starts_with("config.json: beta_fast of the rotary embedding"));
}

}  // namespace
}  // namespace smp
