#include "importers/huggingface_experts.h"

#include <fmt/format.h>

namespace smp::importers {

namespace {

// DeepSeek's keys, which GLM-4.5 has as well.
void read_deepseek_experts(HuggingFaceReader& reader) {
  const huggingface::HuggingFaceExperts& experts = reader.type.experts;
  const auto whole = [&](std::string_view key, int64_t fallback) {
    return reader.keys.whole(key).value_or(fallback);
  };
  if (experts.per_token == 0 && !reader.keys.has("num_experts_per_tok")) {
    reader.keys.error(experts.number_key,
                      fmt::format("{} needs num_experts_per_tok", experts.number_key));
  }
  const int64_t width = whole("moe_intermediate_size", experts.ffn);
  reader.set("moe_intermediate_size", "expert_ffn_hidden_size", width);
  reader.set("n_shared_experts", "shared_expert_ffn_hidden_size",
             whole("n_shared_experts", experts.shared) * width);
  reader.set("first_k_dense_replace", "first_dense_layers",
             whole("first_k_dense_replace", experts.first_dense));
  if (experts.is_sigmoid) {
    reader.set_word("", "router", "sigmoid");
    reader.set_word("", "router_correction_bias", "true");
  }
  const bool normalizes = reader.keys.boolean("norm_topk_prob").value_or(experts.normalizes);
  if (!experts.is_sigmoid && normalizes) {
    reader.keys.error("norm_topk_prob",
                      fmt::format("norm_topk_prob: true is not supported for {}, which ignores it",
                                  reader.type.name));
  }
  if (!normalizes) reader.set_word("norm_topk_prob", "normalize_expert_weights", "false");
  reader.set_word(
      "routed_scaling_factor", "routed_scaling_factor",
      fmt::format("{}", reader.keys.number("routed_scaling_factor").value_or(experts.scale)));
  const bool by_groups =
      experts.is_sigmoid || reader.keys.text("topk_method").value_or("greedy") != "greedy";
  if (by_groups && whole("n_group", experts.groups) > 1) {
    reader.set("n_group", "expert_groups", whole("n_group", experts.groups));
    reader.set("topk_group", "expert_groups_per_token",
               whole("topk_group", experts.groups_per_token));
  }
  if (whole("moe_layer_freq", 1) != 1) {
    reader.keys.error("moe_layer_freq", "moe_layer_freq above 1 is not supported");
  }
  if (whole("num_nextn_predict_layers", 0) > 0) {
    reader.keys.note(
        "num_nextn_predict_layers: the layers that predict further tokens are left out, as "
        "transformers does; model.num_mtp_layers adds them");
  }
}

}  // namespace

void read_huggingface_experts(HuggingFaceReader reader) {
  const huggingface::HuggingFaceExperts& experts = reader.type.experts;
  const bool qwen2 = reader.type.model_class == huggingface::HuggingFaceClass::kQwen2Moe;
  if (experts.num == 0) {
    for (const std::string_view other :
         {"num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
      if (!reader.keys.has(other)) continue;
      reader.keys.warn(other, fmt::format("{} has no effect: model_type {} has no experts", other,
                                          reader.type.name));
    }
    return;
  }
  if (experts.has_deepseek_keys) {
    reader.set(experts.number_key, "num_experts",
               reader.keys.whole(experts.number_key).value_or(experts.num));
    reader.set("num_experts_per_tok", "experts_per_token",
               reader.keys.whole("num_experts_per_tok").value_or(experts.per_token));
    return read_deepseek_experts(reader);
  }
  // transformers 5 calls Qwen 3's key so.
  const bool local = !qwen2 && reader.keys.has("num_local_experts");
  const std::string_view key = local ? "num_local_experts" : "num_experts";
  if (local && reader.keys.has("num_experts") &&
      reader.keys.whole("num_experts") != reader.keys.whole("num_local_experts")) {
    reader.keys.error("num_experts", "keys disagree: num_experts differs from num_local_experts");
  }
  reader.set(key, "num_experts", reader.keys.whole(key).value_or(experts.num));
  reader.set("num_experts_per_tok", "experts_per_token",
             reader.keys.whole("num_experts_per_tok").value_or(experts.per_token));
  if (!experts.always_normalizes &&
      !reader.keys.boolean("norm_topk_prob").value_or(experts.normalizes)) {
    reader.set_word("norm_topk_prob", "normalize_expert_weights", "false");
  }
  if (experts.ffn == 0) {
    reader.set(reader.type.keys.ffn, "expert_ffn_hidden_size",
               reader.keys.whole(reader.type.keys.ffn).value_or(reader.type.sizes.ffn));
    return;
  }
  reader.set("moe_intermediate_size", "expert_ffn_hidden_size",
             reader.keys.whole("moe_intermediate_size").value_or(experts.ffn));
  if (experts.shared_ffn > 0) {
    reader.set("shared_expert_intermediate_size", "shared_expert_ffn_hidden_size",
               reader.keys.whole("shared_expert_intermediate_size").value_or(experts.shared_ffn));
    reader.set_word("", "shared_expert_gate", "true");
  }
  const int64_t period = reader.keys.whole("decoder_sparse_step").value_or(1);
  reader.set("decoder_sparse_step", "moe_layer_period", period);
  // Block i has experts where (i + 1) % step = 0: the first of each `step` begin dense.
  if (period > 1) reader.set("decoder_sparse_step", "first_dense_layers", period - 1);
  const text::YamlNode* dense = reader.keys.node("mlp_only_layers");
  if (dense == nullptr || dense->items.empty()) return;
  for (size_t i = 0; i < dense->items.size(); ++i) {
    if (dense->items[i].text == fmt::format("{}", i) && period == 1) continue;
    reader.keys.error(
        "mlp_only_layers",
        "mlp_only_layers must list the first layers, as in [0, 1], with decoder_sparse_step 1");
    return;
  }
  reader.set("mlp_only_layers", "first_dense_layers", static_cast<int64_t>(dense->items.size()));
}

}  // namespace smp::importers
