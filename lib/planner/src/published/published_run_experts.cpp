#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "published/published_run.h"
#include "smp/plan/model/hybrid.h"

// What the notes of a row say of a model's layers beside plain attention and an MLP.
namespace smp::published {
namespace {

// "([0]*3+[1]*5)": three dense blocks, then five with experts.
void read_layer_frequency(RunCells& cells, ModelSpec& model) {
  const auto frequency = cells.note("moe-layer-freq");
  if (!frequency) return;
  int64_t dense = 0;
  int64_t experts = 0;
  char rest = 0;
  if (std::sscanf(frequency->c_str(), "([0]*%ld+[1]*%ld%c", &dense, &experts, &rest) == 3 &&
      rest == ')' && dense + experts == model.num_layers) {
    model.first_dense_layers = dense;
    return;
  }
  if (const auto period = leading_number(*frequency)) {
    model.moe_layer_period = static_cast<int64_t>(*period);
    return;
  }
  cells.problem(fmt::format("notes: moe-layer-freq={} is not understood", *frequency));
}

}  // namespace

void read_experts(RunCells& cells, ModelSpec& model) {
  const auto set = [&](int64_t& size, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (const auto value = cells.note_count(key)) {
        size = *value;
        return;
      }
    }
  };
  set(model.num_experts, {"num-experts", "num_experts", "experts", "num_moe_experts"});
  set(model.experts_per_token,
      {"moe-router-topk", "moe_router_topk", "top_k", "topk", "top-k", "experts_per_token"});
  set(model.expert_ffn_hidden_size, {"moe-ffn-hidden-size", "moe_ffn_hidden_size", "moe_ffn"});
  set(model.shared_expert_ffn_hidden_size,
      {"moe-shared-expert-intermediate-size", "moe_shared_expert_intermediate_size"});
  if (const auto factor = cells.note("moe-expert-capacity-factor")) {
    const auto value = leading_number(*factor);
    if (!value || *value < 0) {
      cells.problem(fmt::format("notes: moe-expert-capacity-factor={} is not understood", *factor));
    } else {
      model.expert_capacity_factor = *value;
      model.pad_experts_to_capacity = cells.has_note("moe-pad-expert-input-to-capacity");
    }
  } else if (cells.mentions("tokendrop")) {  // NeMo's MegatronTokenDropCallback
    model.expert_capacity_factor = 1;
  }
  if (model.num_experts == 0) {
    if (cells.degree("ep").value_or(1) > 1) {
      cells.problem(
          "ep is above 1, but the row gives no number of experts: set num-experts in notes");
    }
    return;
  }
  if (model.experts_per_token == 0) model.experts_per_token = 2;  // Megatron's --moe-router-topk
  if (model.expert_ffn_hidden_size == 0) model.expert_ffn_hidden_size = model.ffn_hidden_size;
  if (!model::is_hybrid(model)) read_layer_frequency(cells, model);
}

// Megatron's --multi-latent-attention with the sizes that its arguments default to.
void read_latent_attention(RunCells& cells, ModelSpec& model) {
  const bool known = model.kv_lora_rank > 0;
  if (!cells.has_note("multi-latent-attention") && !known) return;
  const auto size = [&](int64_t& value, const char* key, int64_t otherwise) {
    value = cells.note_count(key).value_or(known ? value : otherwise);
  };
  size(model.kv_lora_rank, "kv-lora-rank", 32);
  size(model.q_lora_rank, "q-lora-rank", 0);
  size(model.qk_head_dim, "qk-head-dim", 128);
  size(model.qk_rope_head_dim, "qk-pos-emb-head-dim", 64);
  size(model.v_head_dim, "v-head-dim", 128);
}

// Megatron's --hybrid-layer-pattern, with "|" between stages, and the sizes that its arguments
// default to (arguments.py, mamba_mixer.py).
void read_layer_pattern(RunCells& cells, ModelSpec& model) {
  auto pattern = cells.note("hybrid-layer-pattern");
  if (!pattern) pattern = cells.note("hybrid-override-pattern");
  if (pattern) {
    std::erase(*pattern, '|');
    if (const size_t at = pattern->find_first_not_of("M*-E"); at != std::string::npos) {
      cells.problem(fmt::format("notes: '{}' in hybrid-layer-pattern={} is not understood",
                                (*pattern)[at], *pattern));
      return;
    }
    model.layer_pattern = *pattern;
    if (!cells.has("layers")) model.num_layers = static_cast<int64_t>(pattern->size());
    if (cells.degree("layers").value_or(model.num_layers) !=
        static_cast<int64_t>(pattern->size())) {
      cells.problem(fmt::format("layers is {}, but hybrid-layer-pattern has {} letters",
                                cells.text("layers"), pattern->size()));
    }
  } else if (contains(cells.word("model"), "mamba") && !model::is_hybrid(model)) {
    cells.problem(
        fmt::format("model '{}' has Mamba layers, and the row gives no "
                    "hybrid-layer-pattern in notes",
                    cells.text("model")));
  }
  if (!model::is_hybrid(model)) return;
  const bool known = model.mamba_heads > 0;
  const auto size = [&](int64_t& value, const char* key, int64_t otherwise) {
    value = cells.note_count(key).value_or(known ? value : otherwise);
  };
  size(model.mamba_head_dim, "mamba-head-dim", 64);
  size(model.mamba_state_dim, "mamba-state-dim", 128);
  size(model.mamba_groups, "mamba-num-groups", 8);
  const int64_t hidden = cells.degree("hidden").value_or(model.hidden_size);
  size(model.mamba_heads, "mamba-num-heads",
       2 * hidden / std::max<int64_t>(1, model.mamba_head_dim));
  if (!known) model.mamba_chunk_size = 128;
}

}  // namespace smp::published
