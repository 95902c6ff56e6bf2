#include "huggingface/huggingface_types.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace smp::huggingface {
namespace {

TEST_CASE("the types are sorted by name, in the order of their classes, and found by either") {
  const auto& types = huggingface_types();
  CHECK(std::ranges::is_sorted(types, {}, &HuggingFaceType::name));
  for (size_t i = 0; i < types.size(); ++i) {
    CHECK(types[i].model_class == static_cast<HuggingFaceClass>(i));
    CHECK(&type_of(types[i].model_class) == &types[i]);
    CHECK(type_named(types[i].name) == &types[i]);
  }
  CHECK(type_of(HuggingFaceClass::kNone).architecture == "SmpForCausalLM");
  CHECK(type_named("smp") == &type_of(HuggingFaceClass::kNone));
  CHECK(type_named("phi3") == nullptr);
}

TEST_CASE("defaults have each type's own keys, and none for sizes that follow from others") {
  const text::OrderedJson gpt2 = defaults_of(type_of(HuggingFaceClass::kGpt2));
  CHECK(gpt2.at("n_embd") == 768);
  CHECK(gpt2.at("activation_function") == "gelu_new");
  CHECK(!gpt2.contains("n_inner"));
  CHECK(!gpt2.contains("hidden_size"));
  const text::OrderedJson qwen3 = defaults_of(type_of(HuggingFaceClass::kQwen3));
  CHECK(qwen3.at("head_dim") == 128);
  CHECK(qwen3.at("num_key_value_heads") == 32);
  CHECK(!defaults_of(type_of(HuggingFaceClass::kLlama)).contains("num_key_value_heads"));
  const text::OrderedJson t5 = defaults_of(type_of(HuggingFaceClass::kT5));
  CHECK(t5.at("relative_attention_num_buckets") == 32);
  CHECK(!t5.contains("n_positions"));
}

TEST_CASE("an activation has one word for all its spellings") {
  CHECK(activation_of("gelu_fast") == "gelu_new");
  CHECK(activation_of("gelu_python") == "gelu");
  CHECK(activation_of("swish") == "silu");
  CHECK(activation_of("relu") == "relu");
}

}  // namespace
}  // namespace smp::huggingface
