#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// The eleven types of Hugging Face models that are read. Immutable.
namespace smp::importers {

enum class HuggingFaceBlocks { kLlama, kGpt2, kNeoX, kPhi, kT5 };

// What differs between the types that are read: their names for the sizes, and the defaults of
// their configuration classes (transformers 4.57, models/*/configuration_*.py).
struct HuggingFaceType {
  std::string_view name;
  HuggingFaceBlocks blocks;
  std::string_view hidden = "hidden_size", layers = "num_hidden_layers",
                   heads = "num_attention_heads", kv_heads = "num_key_value_heads",
                   head_dim = "head_dim", ffn = "intermediate_size",
                   positions = "max_position_embeddings", epsilon = "rms_norm_eps",
                   activation = "hidden_act";
  int64_t hidden_default, layers_default, heads_default;
  int64_t kv_default;        // 0 = as many as heads
  int64_t head_dim_default;  // 0 = hidden / heads
  int64_t ffn_default;       // 0 = 4 x hidden
  int64_t vocab_default, positions_default;
  double epsilon_default;
  std::string_view activation_default;
  bool tied_default;
};

const std::array<HuggingFaceType, 11>& huggingface_types();  // by name

}  // namespace smp::importers
