#include "tensor_file_targets.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "fuzz/target.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/xxh64.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

namespace smp::fuzz {

// What is read is written back as a header that reads alike.
void read_safetensors(const std::string& text) {
  const uint64_t length = text.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += text;
  constexpr int64_t kDataBytes = 64;  // of the corpus
  safetensors::SafetensorsHeader header;
  try {
    header = safetensors::parse_safetensors_header("m.safetensors", file,
                                                   static_cast<int64_t>(file.size()) + kDataBytes);
  } catch (const safetensors::SafetensorsError&) {
    try {
      safetensors::parse_safetensors_header("m.safetensors", text,
                                            static_cast<int64_t>(text.size()));
    } catch (const safetensors::SafetensorsError&) {
    }
    return;
  }
  int64_t bytes = 0;
  for (const safetensors::SafetensorsEntry& entry : header.entries) bytes += entry.bytes();
  if (bytes != kDataBytes) throw PropertyBroken{"the tensors do not cover the data"};
  const std::string written = safetensors::make_safetensors_header(header.entries, header.metadata);
  const safetensors::SafetensorsHeader back = safetensors::parse_safetensors_header(
      "m.safetensors", written, static_cast<int64_t>(written.size()) + kDataBytes);
  if (back.entries.size() != header.entries.size() || back.metadata != header.metadata) {
    throw PropertyBroken{"a header changes when it is written and read again"};
  }
}

void read_manifest(const std::string& text) {
  auto json = text::OrderedJson::parse(text, nullptr, false);
  std::string sealed = text;
  if (json.is_object()) {
    json.erase("hash");
    try {
      const std::string content = json.dump();
      json["hash"] =
          fmt::format("{:016x}", xxh64(content.data(), static_cast<int64_t>(content.size())));
      sealed = json.dump();
    } catch (const text::Json::exception&) {  // no UTF-8
    }
  }
  try {
    const checkpoint::Manifest manifest = checkpoint::parse_manifest("manifest.json", sealed);
    const std::string written = checkpoint::to_json(manifest);
    if (checkpoint::to_json(checkpoint::parse_manifest("manifest.json", written)) != written) {
      throw PropertyBroken{"a manifest changes when it is written and read again"};
    }
  } catch (const checkpoint::CheckpointError&) {
  }
}

namespace {

// One of each class of transformers that our weights may be of, and one that is of none.
std::vector<ModelSpec> small_models() {
  std::vector<ModelSpec> models;
  const auto add = [&](ModelFamily family, void (*change)(ModelSpec&)) {
    ModelSpec& model = models.emplace_back();
    model::set_family(model, family);
    model.num_layers = 3;
    model.hidden_size = 16;
    model.num_heads = model.num_kv_heads = 4;
    model.head_dim = 4;
    model.ffn_hidden_size = 64;
    model.vocab_size = 257;
    model.max_positions = 32;
    change(model);
  };
  add(ModelFamily::kGpt2, [](ModelSpec&) {});
  add(ModelFamily::kLlama, [](ModelSpec&) {});
  add(ModelFamily::kLlama, [](ModelSpec& model) { model.sliding_window = 8; });
  add(ModelFamily::kLlama, [](ModelSpec& model) { model.qkv_bias = true; });
  add(ModelFamily::kLlama, [](ModelSpec& model) { model.qk_norm = true; });
  add(ModelFamily::kLlama, [](ModelSpec& model) { model.rope_scaling = RopeScaling::kLlama3; });
  add(ModelFamily::kGpt2, [](ModelSpec& model) {
    model.position_embedding = PositionKind::kRotary;
    model.parallel_residual = model.shared_norm = model.head_bias = true;
    model.rotary_dim = 2;
  });
  add(ModelFamily::kLlama, [](ModelSpec& model) {
    model.stack = Stack::kEncoderDecoder;
    model.decoder_layers = 2;
    model.position_embedding = PositionKind::kRelative;
    model.mlp = MlpKind::kRelu;
  });
  add(ModelFamily::kGpt2, [](ModelSpec& model) { model.qk_norm = true; });
  return models;
}

}  // namespace

void read_hf_config(const std::string& text) {
  for (const ModelSpec& model : small_models()) {
    try {
      huggingface::check_huggingface_config("config.json", text, model);
    } catch (const ConfigError&) {
    }
  }
}

// Every file that an index names lies beside it.
void read_hf_index(const std::string& text) {
  for (const auto& [tensor, file] :
       pretrained::parse_weight_index("model.safetensors.index.json", text)) {
    if (file.find('/') != std::string::npos) throw PropertyBroken{"a shard in another folder"};
  }
}

}  // namespace smp::fuzz
