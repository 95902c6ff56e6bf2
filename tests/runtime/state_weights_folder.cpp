#include "state_weights_folder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "smp/plan/check.h"
#include "smp/plan/model_family.h"
#include "smp/runtime/huggingface_export.h"
#include "smp/runtime/safetensors.h"

namespace smp::test {
namespace {

at::ScalarType scalar_type_of(DType dtype) {
  SMP_CHECK(dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI64);
  if (dtype == DType::kI64) return at::kLong;
  return dtype == DType::kF32 ? at::kFloat : at::kDouble;
}

at::Tensor tensor_in(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry* entry = reader.find(name);
  SMP_CHECK(entry != nullptr);
  const at::Tensor tensor = at::empty(entry->shape, scalar_type_of(entry->dtype));
  reader.read(*entry, tensor.data_ptr());
  return tensor;
}

// Takes a Hugging Face tensor apart into our parameters.
NamedTensors parameters_in(const HuggingFaceTensor& layout, const at::Tensor& tensor) {
  const at::Tensor stacked = layout.transposed ? tensor.t() : tensor;
  NamedTensors parameters;
  int64_t row = 0;
  for (const ParameterSpec& source : layout.sources) {
    parameters[source.name] = stacked.narrow(0, row, source.rows).contiguous();
    row += source.rows;
  }
  return parameters;
}

}  // namespace

ModelSpec model_of_folder(const std::string& dir) {
  std::ifstream in(dir + "/config.json");
  const nlohmann::json config = nlohmann::json::parse(in);
  const auto number = [&](const char* key) { return config.at(key).get<int64_t>(); };
  ModelSpec model;
  set_family(model, config.at("model_type") == "gpt2" ? ModelFamily::kGpt2 : ModelFamily::kLlama);
  model.vocab_size = number("vocab_size");
  model.tied_embeddings = config.at("tie_word_embeddings").get<bool>();
  if (model.family == ModelFamily::kGpt2) {
    model.num_layers = number("n_layer");
    model.hidden_size = number("n_embd");
    model.num_heads = model.num_kv_heads = number("n_head");
    model.head_dim = model.hidden_size / model.num_heads;
    model.ffn_hidden_size = number("n_inner");
    model.max_positions = number("n_positions");
    model.norm_epsilon = config.at("layer_norm_epsilon").get<double>();
  } else {
    model.num_layers = number("num_hidden_layers");
    model.hidden_size = number("hidden_size");
    model.num_heads = number("num_attention_heads");
    model.num_kv_heads = number("num_key_value_heads");
    model.head_dim = number("head_dim");
    model.ffn_hidden_size = number("intermediate_size");
    model.max_positions = number("max_position_embeddings");
    model.norm_epsilon = config.at("rms_norm_eps").get<double>();
    model.rope_theta = config.at("rope_theta").get<double>();
  }
  return model;
}

NamedTensors weights_of_folder(const ModelSpec& model, const std::string& dir,
                               at::ScalarType type) {
  const SafetensorsReader reader(dir + "/model.safetensors");
  const std::vector<HuggingFaceTensor> layouts = huggingface_tensors(model);
  SMP_CHECK_EQ(reader.header().entries.size(), layouts.size());
  NamedTensors weights;
  for (const HuggingFaceTensor& layout : layouts) {
    weights.merge(parameters_in(layout, tensor_in(reader, layout.name).to(type)));
  }
  return weights;
}

at::Tensor tensor_of_file(const std::string& path, const std::string& name) {
  return tensor_in(SafetensorsReader(path), name);
}

at::Tensor log_probabilities(const ModelOnRank& model, const std::vector<int64_t>& tokens,
                             int64_t vocab_size) {
  const auto length = static_cast<int64_t>(tokens.size());
  const c10::InferenceMode no_gradients;
  at::Tensor x = at::empty({1, length}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), x.data_ptr<int64_t>());
  const auto& layers = model.layers();
  for (size_t i = 0; i + 1 < layers.size(); ++i) x = layers[i]->forward({x}, {}, nullptr).front();
  const at::Tensor result = at::empty({length, vocab_size}, x.options());
  for (int64_t position = 0; position < length; ++position) {
    const at::Tensor here = x.narrow(1, position, 1).contiguous();
    for (int64_t target = 0; target < vocab_size; ++target) {
      const at::Tensor wanted = at::full({1, 1}, target, at::kLong);
      result[position][target] = -layers.back()->forward({here, wanted}, {}, nullptr).front();
    }
  }
  return result;
}

}  // namespace smp::test
