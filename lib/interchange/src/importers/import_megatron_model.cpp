#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "importers/megatron_line.h"
#include "importers/named_model.h"

// The model of a Megatron-LM command line.
namespace smp::importers {

void MegatronLine::model() {
  reader_.set("model.family", "transformer", "Megatron");
  const bool swiglu = has("swiglu");
  const bool geglu = has("quick-geglu");
  const std::string_view mlp = swiglu ? "swiglu" : geglu ? "quick-geglu" : "squared-relu";
  set(has(mlp) ? mlp : "swiglu", "model.mlp",
      std::string(swiglu                ? "swiglu"
                  : geglu               ? "geglu"
                  : has("squared-relu") ? "relu"
                                        : "gelu"));
  activation();
  const std::string normalization = reader_.text("normalization").value_or("LayerNorm");
  set("normalization", "model.norm",
      std::string(normalization == "RMSNorm" || normalization == "rmsnorm" ? "rmsnorm"
                                                                           : "layernorm"));
  const bool bias = !has("disable-bias-linear");
  set(has("add-qkv-bias") ? "add-qkv-bias" : "disable-bias-linear", "model.qkv_bias",
      bias || has("add-qkv-bias"));
  set("disable-bias-linear", "model.attention_output_bias", bias);
  set("disable-bias-linear", "model.mlp_bias", bias);
  if (has("qk-layernorm")) set("qk-layernorm", "model.qk_norm", true);
  const std::string softmax = reader_.text("softmax-type").value_or("vanilla");
  if (softmax == "learnable") set("softmax-type", "model.attention_sinks", true);
  if (softmax == "off-by-one") {
    reader_.error(
        "softmax-type",
        "--softmax-type off-by-one is not supported; supported are vanilla and learnable");
  }
  set("untie-embeddings-and-output-weights", "model.tied_embeddings",
      !has("untie-embeddings-and-output-weights"));
  positions();
  sizes(swiglu);
  vocabulary();
  for (const std::string_view kind : {"attention", "hidden"}) {
    const std::string flag = fmt::format("{}-dropout", kind);
    set(flag, fmt::format("model.{}_dropout", kind),
        fmt::format("{}", reader_.number(flag).value_or(0.1)));
  }
  experts();
  latent_attention();
  hybrid();
  further_tokens();
}

void MegatronLine::leave_model() {
  for (const std::string_view kind : {"attention", "hidden"}) {
    const std::string flag = fmt::format("{}-dropout", kind);
    if (!has(flag)) continue;
    set(flag, fmt::format("model.{}_dropout", kind), fmt::format("{}", *reader_.number(flag)));
  }
  leave_tokenizer();
  std::string unread;
  for (const ForeignKey& row : megatron_keys()) {
    const bool of_model = row.use == Use::kRead && row.target.starts_with("model.");
    if (!of_model || !has(row.key) || row.key.ends_with("-dropout")) continue;
    if (row.key.starts_with("tokenizer-") || row.key == "vocab-file") continue;
    unread += fmt::format("{}--{}", unread.empty() ? "" : ", ", row.key);
  }
  if (unread.empty()) return;
  reader_.warn_of_file(
      fmt::format("the model is given by {}, so these have no effect: {}",
                  known_.num_layers ? "a config.json of the same call" : "its name", unread));
}

void MegatronLine::vocabulary() {
  if (const auto rows = whole("pad-vocab-size-to")) {
    set("pad-vocab-size-to", "model.vocab_size", *rows);
    set("pad-vocab-size-to", "model.vocab_multiple_of", int64_t{1});
    leave_tokenizer();
    return;
  }
  if (has("vocab-size")) {
    set("vocab-size", "model.vocab_size", *whole("vocab-size"));
    leave_tokenizer();
  } else if (!vocabulary_of_tokenizer()) {
    leave_tokenizer();
  }
  set("make-vocab-size-divisible-by", "model.vocab_multiple_of",
      whole("make-vocab-size-divisible-by").value_or(128));
}

// Megatron takes the size from the tokenizer: GPT-2's 50,257 and Llama 2's 32,000 pieces, and what
// the repository of a Hugging Face model holds.
bool MegatronLine::vocabulary_of_tokenizer() {
  const std::string type = reader_.text("tokenizer-type").value_or("");
  const std::string file = reader_.text("vocab-file").value_or("");
  const bool gpt2_file = file.substr(file.rfind('/') + 1) == "gpt2-vocab.json";
  if (gpt2_file || (type == "GPT2BPETokenizer" && file.empty())) {
    const std::string_view flag = gpt2_file ? "vocab-file" : "tokenizer-type";
    reader_.set_from(flag, "model.vocab_size", "50257");
  } else if (type == "Llama2Tokenizer") {
    reader_.set_from("tokenizer-type", "model.vocab_size", "32000");
  } else if (type == "HuggingFaceTokenizer") {
    const std::string size = vocabulary_of_model(reader_.text("tokenizer-model").value_or(""));
    if (size.empty()) return false;
    reader_.set_from("tokenizer-model", "model.vocab_size", size);
  } else {
    return false;
  }
  return true;
}

void MegatronLine::leave_tokenizer() {
  for (const char* flag : {"tokenizer-type", "tokenizer-model", "vocab-file"}) {
    if (has(flag)) reader_.leave_out(fmt::format("--{}", flag));
  }
}

// Its fused GELU is the tanh one and needs a bias (validate_args; mlp.py); the other is exact.
void MegatronLine::activation() {
  gate();
  if (has("squared-relu")) {
    reader_.warn("squared-relu",
                 "--squared-relu becomes model.mlp: relu, which has the same bytes and flops, but "
                 "computes another function");
    return;
  }
  if (has("swiglu")) return;
  if (has("quick-geglu")) return set("quick-geglu", "model.gelu", std::string("sigmoid"));
  const bool fused = !has("disable-bias-linear") && !has("no-bias-gelu-fusion");
  set(has("disable-bias-linear") ? "disable-bias-linear" : "no-bias-gelu-fusion", "model.gelu",
      std::string(fused ? "tanh" : "erf"));
}

// What gpt-oss adds to a gate (mlp.py).
void MegatronLine::gate() {
  if (const auto limit = reader_.text("activation-func-clamp-value")) {
    set("activation-func-clamp-value", "model.glu_limit", *limit);
  }
  if (const auto offset = reader_.text("glu-linear-offset")) {
    set("glu-linear-offset", "model.glu_offset", *offset);
  }
}

void MegatronLine::positions() {
  const std::string type = reader_.text("position-embedding-type").value_or("learned_absolute");
  if (type == "yarn" || type == "mrope" || type == "relative") {
    reader_.error("position-embedding-type",
                  fmt::format("--position-embedding-type {} is not supported; supported are "
                              "learned_absolute, rope, alibi and none",
                              type));
  }
  const bool rotary = type == "rope" || has("use-rotary-position-embeddings");
  const bool none = type == "none" || (has("no-position-embedding") && !rotary);
  set(has("use-rotary-position-embeddings") ? "use-rotary-position-embeddings"
                                            : "position-embedding-type",
      "model.position_embedding",
      std::string(rotary            ? "rotary"
                  : none            ? "none"
                  : type == "alibi" ? "alibi"
                                    : "learned"));
  if (has("embed-layernorm")) {
    reader_.warn(
        "embed-layernorm",
        "--embed-layernorm: the plan lacks the norm after the embedding (2 x hidden parameters)");
  }
  if (rotary && has("rotary-base")) {
    set("rotary-base", "model.rope_theta", *reader_.text("rotary-base"));
  }
  rotary_share(rotary);
  if (rotary) rotary_scaling();
  if (rotary && has("rotary-interleaved")) {
    reader_.warn("rotary-interleaved",
                 "--rotary-interleaved: smp pairs elements half a head apart, at the same price");
  }
  window();
}

void MegatronLine::rotary_share(bool rotary) {
  const double percent = reader_.number("rotary-percent").value_or(1);
  if (!rotary || percent == 1) return;
  const auto hidden = whole("hidden-size"), heads = whole("num-attention-heads");
  const auto width = has("kv-channels")              ? whole("kv-channels")
                     : hidden && heads && *heads > 0 ? std::optional(*hidden / *heads)
                                                     : std::nullopt;
  if (!width) return;
  set("rotary-percent", "model.rotary_dim",
      static_cast<int64_t>(static_cast<double>(*width) * percent));
}

// Llama 3's other three numbers are fixed there, and are a job's defaults
// (rotary_pos_embedding.py).
void MegatronLine::rotary_scaling() {
  constexpr std::string_view kLinear = "rotary-seq-len-interpolation-factor";
  const int64_t factor = whole(kLinear).value_or(1);
  if (has("use-rope-scaling") && factor > 1) {
    reader_.error(
        kLinear,
        fmt::format("--{} and --use-rope-scaling both scale the rotary frequencies: remove one",
                    kLinear));
  } else if (has("use-rope-scaling")) {
    set("use-rope-scaling", "model.rope_scaling", std::string("llama3"));
    set("rope-scaling-factor", "model.rope_scaling_factor",
        reader_.text("rope-scaling-factor").value_or("8"));
  } else if (factor > 1) {
    set(kLinear, "model.rope_scaling", std::string("linear"));
    set(kLinear, "model.rope_scaling_factor", factor);
  }
}

// "(127,0)": so many keys to the left and to the right of a query's own; -1 = all.
void MegatronLine::window() {
  auto text = reader_.text("window-size");
  if (!text && has("window-attn-skip-freq")) reader_.leave_out("--window-attn-skip-freq");
  if (!text) return;
  std::erase_if(*text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const size_t comma = text->find(',');
  const auto left = whole_value(text->substr(0, comma));
  const std::string right = comma == std::string::npos ? "" : text->substr(comma + 1);
  if (!left || *left < -1 || (right != "0" && right != "-1")) {
    reader_.error("window-size", fmt::format("--window-size {} is not supported: expected (N,0), "
                                             "with N keys before the query, or (-1,0)",
                                             *reader_.text("window-size")));
  } else if (*left >= 0) {
    set("window-size", "model.sliding_window", *left + 1);
    full_layers();
  }
}

// Every N-th layer has no window (transformer_config.py, window_attn_skip_freq).
void MegatronLine::full_layers() {
  constexpr std::string_view kFlag = "window-attn-skip-freq";
  const auto text = reader_.text(kFlag);
  if (!text) return;
  const auto period = whole_value(*text);
  if (period && *period >= 1 && *period <= 1 << 20) {
    set(kFlag, "model.full_attention_period", *period);
  } else {
    reader_.error(kFlag, fmt::format("--{} {} is not supported: expected N, where every N-th layer "
                                     "has no window",
                                     kFlag, *text));
  }
}

void MegatronLine::sizes(bool swiglu) {
  const auto hidden = whole("hidden-size");
  const auto heads = whole("num-attention-heads");
  const auto groups = whole("num-query-groups");
  if (hidden && heads && !has("kv-channels") && *hidden % *heads != 0) {
    reader_.error("hidden-size",
                  fmt::format("--hidden-size ({}) is not divisible by --num-attention-heads ({})",
                              *hidden, *heads));
  }
  if (has("group-query-attention") && groups) {
    set("num-query-groups", "model.num_kv_heads", *groups);
    if (heads && *heads % *groups != 0) {
      reader_.error("num-query-groups",
                    fmt::format("--num-attention-heads ({}) is not divisible by "
                                "--num-query-groups ({})",
                                *heads, *groups));
    }
  } else if (groups && heads && *groups != *heads) {
    reader_.warn("num-query-groups",
                 "--num-query-groups has no effect in Megatron without --group-query-attention");
  }
  if (const auto ffn = whole("ffn-hidden-size")) {
    set("ffn-hidden-size", "model.ffn_hidden_size", *ffn);
  } else if (hidden) {
    // arguments.py, validate_args: int((4 * hidden * 2 / 3) / 64) * 64
    set("ffn-hidden-size", "model.ffn_hidden_size",
        swiglu ? *hidden * 8 / 3 / 64 * 64 : 4 * *hidden);
  }
}

// A softmax is of the chosen scores unless it comes first; sigmoids are always normalized
// (moe_utils.py, topk_routing_with_score_function). Without experts no flag of it has an effect.
void MegatronLine::router() {
  const std::string score = reader_.text("moe-router-score-function").value_or("softmax");
  for (const auto& [flag, path] :
       {std::pair{"moe-router-score-function", "model.router"},
        std::pair{"moe-router-topk-scaling-factor", "model.routed_scaling_factor"},
        std::pair{"moe-router-num-groups", "model.expert_groups"},
        std::pair{"moe-router-group-topk", "model.expert_groups_per_token"}}) {
    if (const auto value = reader_.text(flag)) set(flag, path, *value);
  }
  if (has("moe-router-pre-softmax") && score == "softmax") {
    set("moe-router-pre-softmax", "model.normalize_expert_weights", false);
  }
  router_losses();
}

void MegatronLine::further_tokens() {
  const auto factor = reader_.text("mtp-loss-scaling-factor");
  if (factor && has("mtp-num-layers")) {
    set("mtp-loss-scaling-factor", "model.mtp_loss_factor", *factor);
  }
}

void MegatronLine::router_losses() {
  if (has("moe-router-enable-expert-bias")) {
    set("moe-router-enable-expert-bias", "model.router_correction_bias", true);
    if (const auto rate = reader_.text("moe-router-bias-update-rate")) {
      set("moe-router-bias-update-rate", "model.router_correction_rate", *rate);
    }
  }
  if (const auto loss = reader_.text("moe-z-loss-coeff")) {
    set("moe-z-loss-coeff", "model.router_z_loss", *loss);
  }
  constexpr const char* kType = "moe-router-load-balancing-type";
  const std::string type = reader_.text(kType).value_or("aux_loss");
  const auto loss = reader_.text("moe-aux-loss-coeff");
  if (!loss || reader_.number("moe-aux-loss-coeff").value_or(0) == 0) return;
  if (type != "aux_loss" && type != "seq_aux_loss" && type != "global_aux_loss") {
    if (type != "none") {
      reader_.warn(kType, fmt::format("{} {} is not supported: the job has no balancing loss",
                                      kType, text::quoted_for_message(type)));
    }
    return;
  }
  set("moe-aux-loss-coeff", "model.router_balance_loss", *loss);
  if (type == "seq_aux_loss") {
    set(kType, "model.router_balance_over", std::string("sequence"));
  } else if (type == "global_aux_loss") {
    set(kType, "model.router_balance_over", std::string("batch"));
  }
}

void MegatronLine::experts() {
  if (!has("num-experts")) return;
  set("moe-router-topk", "model.experts_per_token", whole("moe-router-topk").value_or(2));
  router();
  constexpr const char* kCapacity = "moe-expert-capacity-factor";
  const double capacity = reader_.number(kCapacity).value_or(0);
  if (capacity > 0) set(kCapacity, "model.expert_capacity_factor", *reader_.text(kCapacity));
  if (const auto width = whole("moe-ffn-hidden-size")) {
    set("moe-ffn-hidden-size", "model.expert_ffn_hidden_size", *width);
  }
  const auto frequency = reader_.text("moe-layer-freq");
  if (!frequency) return;
  if (const auto period = whole_value(*frequency); period && *period > 0) {
    set("moe-layer-freq", "model.moe_layer_period", *period);
    return;
  }
  int64_t dense = 0, sparse = 0;
  if (dense_then_sparse(*frequency, dense, sparse)) {
    set("moe-layer-freq", "model.first_dense_layers", dense);
    return;
  }
  reader_.error("moe-layer-freq",
                fmt::format("--moe-layer-freq {} is not supported: expected a number, or dense "
                            "layers before all others, as in ([0]*3+[1]*58)",
                            *frequency));
}

// "([0]*3+[1]*58)", with or without a factor
bool MegatronLine::dense_then_sparse(std::string text, int64_t& dense, int64_t& sparse) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const auto part = [](std::string_view item, char digit) -> std::optional<int64_t> {
    if (item.size() < 3 || item[0] != '[' || item[1] != digit || item[2] != ']') {
      return std::nullopt;
    }
    if (item.size() == 3) return 1;
    return item[3] == '*' ? whole_value(item.substr(4)) : std::nullopt;
  };
  const size_t plus = text.find('+');
  if (plus == std::string::npos) return false;
  const auto first = part(std::string_view(text).substr(0, plus), '0');
  const auto second = part(std::string_view(text).substr(plus + 1), '1');
  if (!first || !second || *first < 0) return false;
  dense = *first;
  sparse = *second;
  return true;
}

void MegatronLine::latent_attention() {
  if (!has("multi-latent-attention")) return;
  const auto copy = [&](std::string_view flag, std::string_view path, int64_t fallback) {
    const int64_t value = whole(flag).value_or(fallback);
    if (value > 0) set(flag, path, value);
  };
  // Defaults: transformer_config.py, class MLATransformerConfig.
  copy("q-lora-rank", "model.q_lora_rank", 0);
  copy("kv-lora-rank", "model.kv_lora_rank", 32);
  copy("qk-head-dim", "model.qk_head_dim", 128);
  copy("qk-pos-emb-head-dim", "model.qk_rope_head_dim", 64);
  copy("v-head-dim", "model.v_head_dim", 128);
  latent_rope();
}

// Latent attention turns by yarn unless told otherwise, of the class's 4096 original positions
// (multi_latent_attention.py; yarn_rotary_pos_embedding.py).
void MegatronLine::latent_rope() {
  const double factor = reader_.number("rotary-scaling-factor").value_or(1);
  if (reader_.text("rope-type").value_or("yarn") == "rope" || factor <= 1) return;
  const double mscale = reader_.number("mscale").value_or(1);
  const double all_dim = reader_.number("mscale-all-dim").value_or(0);
  set("rotary-scaling-factor", "model.rope_scaling", std::string("yarn"));
  set("rotary-scaling-factor", "model.rope_scaling_factor", fmt::format("{}", factor));
  set("rotary-scaling-factor", "model.rope_original_positions", int64_t{4096});
  if (all_dim > 0) {
    set("mscale", "model.rope_mscale", fmt::format("{}", mscale));
    set("mscale-all-dim", "model.rope_mscale_all_dim", fmt::format("{}", all_dim));
  } else if (mscale != 1) {
    set("mscale", "model.rope_attention_factor",
        fmt::format("{}", 0.1 * mscale * std::log(factor) + 1));
  }
}

}  // namespace smp::importers
