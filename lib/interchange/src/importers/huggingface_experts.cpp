#include "importers/huggingface_experts.h"

#include <fmt/format.h>

namespace smp::importers {

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
  if (experts.ffn == 0) {  // mixtral, which always normalizes
    reader.set(reader.type.keys.ffn, "expert_ffn_hidden_size",
               reader.keys.whole(reader.type.keys.ffn).value_or(reader.type.sizes.ffn));
    return;
  }
  if (!reader.keys.boolean("norm_topk_prob").value_or(false)) {
    reader.set_word("norm_topk_prob", "normalize_expert_weights", "false");
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
