#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <doctest/doctest.h>

#include <cmath>

#include "layers_support.h"
#include "smp/plan/model_family.h"
#include "smp/runtime/safetensors.h"
#include "state_weights_folder.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::test;

namespace {

// A file of scripts/make-golden-huggingface.
struct Golden {
  explicit Golden(const std::string& name)
      : reader(std::string(SMP_SOURCE_DIR) + "/tests/golden/huggingface/" + name + ".safetensors") {
    const auto& values = reader.header().metadata;
    const auto number = [&](const char* key) { return std::stoll(values.at(key)); };
    const bool is_t5 = values.at("family") == "t5";
    set_family(model, values.at("family") == "gpt2" ? ModelFamily::kGpt2 : ModelFamily::kLlama);
    if (is_t5) {
      model.stack = Stack::kEncoderDecoder;
      model.position_embedding = PositionKind::kRelative;
      model.mlp = values.at("mlp") == "relu" ? MlpKind::kRelu : MlpKind::kGeglu;
      model.decoder_layers = number("decoder_layers");
    }
    model.num_layers = number("num_layers");
    model.hidden_size = number("hidden_size");
    model.num_heads = number("num_heads");
    model.num_kv_heads = number("num_kv_heads");
    model.head_dim = number("head_dim");
    model.ffn_hidden_size = number("ffn_hidden_size");
    model.vocab_size = number("vocab_size");
    model.max_positions = number("max_positions");
    model.tied_embeddings = number("tied_embeddings") != 0;
  }

  at::Tensor tensor(const std::string& name) const {
    const SafetensorsEntry* entry = reader.find(name);
    REQUIRE_MESSAGE(entry != nullptr, name);
    const at::Tensor read =
        at::empty(entry->shape, entry->dtype == DType::kI64 ? at::kLong : at::kDouble);
    reader.read(*entry, read.data_ptr());
    return read;
  }

  NamedTensors all(const std::string& prefix, at::ScalarType type) const {
    NamedTensors tensors;
    for (const SafetensorsEntry& entry : reader.header().entries) {
      if (!entry.name.starts_with(prefix)) continue;
      tensors[entry.name.substr(prefix.size())] = tensor(entry.name).to(type);
    }
    return tensors;
  }

  SafetensorsReader reader;
  ModelSpec model;
};

void check_against(const std::string& name, at::ScalarType type, double tolerance) {
  at::set_num_threads(1);
  const Golden golden(name);
  const double loss = golden.tensor("loss").item().toDouble();
  ModelOnRank rank(golden.model, golden.all("weight.", type), nullptr);
  const double ours = rank.run({golden.tensor("tokens"), golden.tensor("targets")}, true);
  INFO(name);
  CHECK(std::abs(ours - loss) <= tolerance * loss);
  const at::Tensor tokens = golden.tensor("tokens"), expected = golden.tensor("log_probabilities");
  const bool decodes_alone = golden.model.stack == Stack::kDecoder;
  for (int64_t sample = 0; decodes_alone && sample < tokens.size(0); ++sample) {
    const auto* first = tokens.const_data_ptr<int64_t>() + sample * tokens.size(1);
    const at::Tensor found =
        log_probabilities(rank, {first, first + tokens.size(1)}, golden.model.vocab_size);
    const double difference =
        found.to(at::kDouble).sub(expected[sample]).abs().max().item().toDouble();
    CHECK(difference <= tolerance);
  }
  const NamedTensors gradients = golden.all("gradient.", at::kDouble);
  CHECK(gradients.size() == rank.gradients().size());
  for (const auto& [parameter, gradient] : gradients) {
    INFO(parameter);
    const double difference =
        rank.gradients().at(parameter).to(at::kDouble).sub(gradient).abs().max().item().toDouble();
    CHECK(difference <= tolerance);
  }
}

}  // namespace

TEST_CASE("layers: loss, log-probabilities and gradients are those of Hugging Face's") {
  for (const char* name : {"gpt2-tied", "llama-gqa", "llama-tied", "t5-gated", "t5-tied"}) {
    check_against(name, at::kDouble, tolerance::kHuggingFaceF64);
    check_against(name, at::kFloat, tolerance::kHuggingFaceF32);
  }
}
