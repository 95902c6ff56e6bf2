#include "importers/megatron_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "importers/field_values.h"

namespace smp::importers {

bool MegatronFields::take(const std::string& field, const std::string& shown, text::Place place,
                          const text::YamlNode& value, bool of_recipe) {
  const auto row = megatron_field(field);
  if (!row) {
    if (is_off(value)) flags_.leave_out(shown);
    return is_off(value);
  }
  if (row->use == FieldUse::kIgnored) {
    if (!of_recipe) flags_.leave_out(shown);
    return true;
  }
  Value* known = value_of(field);
  const bool counts = !is_none(value) || (known != nullptr && known->of_recipe);
  if (!counts) return true;
  // Switches that several sections have, of which one is enough; what mixed_precision says is last.
  const bool is_shared = field == "bf16" || field == "fp16" ||
                         field == "use_distributed_optimizer" || field == "use_megatron_fsdp";
  if (is_shared && known != nullptr && !known->of_recipe && bool_value(known->node) == true &&
      bool_value(value) == false && !shown.starts_with("mixed_precision")) {
    return true;
  }
  const bool differs = known != nullptr && !known->of_recipe && known->shown != shown &&
                       known->node.text != value.text;
  if (field == "seq_length" && differs) {
    flags_.error_at(value.place, fmt::format("{} is {}, but {} is {}: they must be equal", shown,
                                             value.text, known->shown, known->node.text));
  }
  const Value taken{field, shown, place, value, of_recipe};
  if (known != nullptr) {
    *known = taken;
  } else {
    values_.push_back(taken);
  }
  return true;
}

MegatronFields::Value* MegatronFields::value_of(std::string_view field) {
  const auto found = std::ranges::find(values_, field, &Value::field);
  return found != values_.end() ? &*found : nullptr;
}

const text::YamlNode* MegatronFields::find(std::string_view field) const {
  const auto found = std::ranges::find(values_, field, &Value::field);
  return found != values_.end() && !is_none(found->node) ? &found->node : nullptr;
}

std::optional<int64_t> MegatronFields::whole(std::string_view field) const {
  const text::YamlNode* node = find(field);
  return node != nullptr && node->kind == NodeKind::kScalar ? whole_value(node->text)
                                                            : std::nullopt;
}

std::optional<bool> MegatronFields::boolean(std::string_view field) const {
  const text::YamlNode* node = find(field);
  return node != nullptr && node->kind == NodeKind::kScalar ? bool_value(*node) : std::nullopt;
}

void MegatronFields::error(const Value& value, const std::string& message) {
  flags_.error_at(value.node.place, fmt::format("{}: {}", value.shown, message));
}

void MegatronFields::warn(const Value& value, const std::string& message) {
  out_.warnings.push_back(fmt::format("{}:{}:{}: {}: {}", out_.file, value.place.line,
                                      value.place.column, value.shown, message));
}

void MegatronFields::give(const Value& value, std::string_view flag, const text::YamlNode& node) {
  flags_.add(std::string(flag), value.place, node, false, value.shown);
}

void MegatronFields::give(const Value& value, std::string_view flag, std::string text) {
  give(value, flag, scalar_node(std::move(text), value.node.place));
}

namespace {

// The word of a flag for a type of torch.
std::string flag_word(const std::string& type) {
  if (type == "float32") return "fp32";
  if (type == "bfloat16") return "bf16";
  if (type == "float16") return "fp16";
  return type == "uint8" ? "fp8" : type;
}

}  // namespace

void MegatronFields::give_row(const Value& value, const MegatronField& row) {
  if (row.use == FieldUse::kTrue || row.use == FieldUse::kFalse) {
    const auto given = bool_value(value.node);
    if (!given) {
      error(value, fmt::format("expected true or false, not {}", text::described(value.node)));
    } else if (*given == (row.use == FieldUse::kTrue)) {
      give(value, row.flag, "true");
    }
    return;
  }
  const ForeignKey* flag = flags_.row_of(row.flag);
  text::YamlNode node = value.node;
  if (node.kind == NodeKind::kScalar) node.quoted = false;  // a number in quotes of a log or YAML
  if (flag->form == Form::kList && node.kind == NodeKind::kScalar) {
    node.kind = NodeKind::kList;
    for (const std::string& item : items_of(value.node)) {
      node.items.push_back(scalar_node(item, node.place));
    }
  } else if (flag->form == Form::kText && node.kind == NodeKind::kMap) {
    node = scalar_node(last_word(node), node.place);
  }
  give(value, row.flag, node);
}

void MegatronFields::activation() {
  const Value* word = value_of("activation");
  const Value* function = value_of("activation_func");
  const Value* given = word != nullptr ? word : function;
  if (given == nullptr || is_none(given->node)) return;
  std::string kind = last_word(given->node);
  if (kind.starts_with("fast-")) kind.erase(0, 5);
  const bool gated = boolean("gated_linear_unit").value_or(false);
  if (kind == "swiglu" || (kind == "silu" && gated)) {
    give(*given, "swiglu", "true");
  } else if (kind == "quick_gelu" && gated) {
    give(*given, "quick-geglu", "true");
  } else if (kind == "geglu" || (kind == "gelu" && gated)) {
    warn(*given,
         "becomes model.mlp: geglu with gelu: sigmoid, which has the same bytes and flops, "
         "but computes another function");
    give(*given, "quick-geglu", "true");
  } else if (kind == "squared_relu" || kind == "squared-relu") {
    give(*given, "squared-relu", "true");
  } else if (kind != "gelu" && kind != "openai_gelu") {
    error(*given, fmt::format("{} is not supported; supported are gelu, squared_relu, and silu or "
                              "gelu with a gate",
                              text::quoted_for_message(kind)));
  }
}

// A log prints 1 where --group-query-attention is not given; a configuration leaves it null.
void MegatronFields::key_value_heads() {
  const Value* groups = value_of("num_query_groups");
  if (groups == nullptr || is_none(groups->node)) return;
  const Value* enabled = value_of("group_query_attention");
  if (enabled != nullptr && bool_value(enabled->node) == false) return;
  give(*groups, "num-query-groups", groups->node);
  if (enabled == nullptr) give(*groups, "group-query-attention", "true");
}

void MegatronFields::virtual_stages() {
  const Value* degree = value_of("virtual_pipeline_model_parallel_size");
  if (degree != nullptr && !is_none(degree->node)) {
    give(*degree, "num-virtual-stages-per-pipeline-rank", degree->node);
    return;
  }
  for (const auto& [field, flag] :
       {std::pair{"num_virtual_stages_per_pipeline_rank", "num-virtual-stages-per-pipeline-rank"},
        std::pair{"num_layers_per_virtual_pipeline_stage",
                  "num-layers-per-virtual-pipeline-stage"}}) {
    const Value* value = value_of(field);
    if (value == nullptr || is_none(value->node)) continue;
    give(*value, flag, value->node);
    return;
  }
}

// transformer_block.py, get_num_layers_to_build: embedding and loss each count as a layer.
void MegatronFields::stage_ends() {
  const bool first = boolean("account_for_embedding_in_pipeline_split").value_or(false);
  const bool last = boolean("account_for_loss_in_pipeline_split").value_or(false);
  if (!first && !last) return;
  const Value& value = *value_of(first ? "account_for_embedding_in_pipeline_split"
                                       : "account_for_loss_in_pipeline_split");
  const int64_t chunks = product_of({whole("pipeline_model_parallel_size").value_or(1),
                                     whole("virtual_pipeline_model_parallel_size").value_or(1)});
  const ImportedKey* named = out_.find("model.num_layers");
  const auto layers = has("num_layers")  ? whole("num_layers")
                      : named != nullptr ? whole_value(named->value)
                                         : std::nullopt;
  constexpr int64_t kMost = 65536;  // more layers, and so chunks, no job takes: its reader says so
  if (chunks < 2 || chunks > kMost || layers.value_or(0) > kMost) return;
  if (!layers) {
    error(value, "the number of layers is missing: name the model's config.json in the same call");
    return;
  }
  const int64_t counted = *layers + (first ? 1 : 0) + (last ? 1 : 0);
  if (counted % chunks != 0) {
    error(value, fmt::format("{} layers with the embedding or the loss are not divisible by {} "
                             "chunks of layers",
                             counted, chunks));
    return;
  }
  std::string list;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t less = (first && chunk == 0 ? 1 : 0) + (last && chunk + 1 == chunks ? 1 : 0);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", counted / chunks - less);
  }
  flags_.set("parallel.partition", fmt::format("[{}]", list), value.shown);
}

void MegatronFields::expert_layers(const Value& value) {
  if (value.node.kind == NodeKind::kScalar && !value.node.text.starts_with('[')) {
    give(value, "moe-layer-freq", value.node.text);
    return;
  }
  const std::vector<std::string> items = items_of(value.node);
  const auto dense = std::ranges::find(items, "1") - items.begin();
  const auto sparse = std::ranges::count(items, "1");
  if (sparse == 0 || dense + sparse != static_cast<int64_t>(items.size())) {
    error(value, "expected zeros for dense layers before ones for layers with experts");
  } else if (dense == 0) {
    give(value, "moe-layer-freq", "1");
  } else {
    give(value, "moe-layer-freq", fmt::format("([0]*{}+[1]*{})", dense, sparse));
  }
}

void MegatronFields::window(const Value& value) {
  give(value, "window-size", fmt::format("({})", with_commas(items_of(value.node))));
}

// [paths, weights] of megatron/core/datasets/blended_megatron_dataset_config.py
void MegatronFields::blend(const Value& value) {
  text::YamlNode words = value.node;
  words.items.clear();
  if (value.node.kind != NodeKind::kList || value.node.items.empty() ||
      value.node.items[0].kind != NodeKind::kList) {
    error(value, "expected a list of paths and a list of their weights, or null");
    return;
  }
  const std::vector<text::YamlNode>& paths = value.node.items[0].items;
  const bool weighs = value.node.items.size() > 1 && value.node.items[1].kind == NodeKind::kList;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (weighs && i < value.node.items[1].items.size()) {
      words.items.push_back(value.node.items[1].items[i]);
    }
    words.items.push_back(paths[i]);
  }
  give(value, "data-path", words);
}

void MegatronFields::ranks(const Value& value, const ImportContext& context) {
  const auto world = whole_value(value.node.text);
  const auto hosts = context.hosts;
  const auto each =
      context.processes_per_host ? context.processes_per_host : context.cluster_processes_per_host;
  if (!world || *world < 1) {
    error(value, "expected the number of ranks");
  } else if (!hosts && !each) {
    error(value, fmt::format("{} ranks: give --processes-per-host N, so that the hosts are known",
                             *world));
  } else if (*world % (hosts ? *hosts : std::min(*each, *world)) != 0) {
    error(value, fmt::format("{} ranks are not a multiple of the given {} {}", *world,
                             hosts ? *hosts : *each, hosts ? "hosts" : "ranks of a host"));
  } else {
    const int64_t per_host = hosts ? *world / *hosts : std::min(*each, *world);
    give(value, "nnodes", fmt::format("{}", *world / per_host));
    give(value, "nproc-per-node", fmt::format("{}", per_host));
  }
}

void MegatronFields::own(const Value& value, const ImportContext& context) {
  const std::string& field = value.field;
  const text::YamlNode& node = value.node;
  if (field == "moe_layer_freq") return expert_layers(value);
  if (field == "window_size") return window(value);
  if (field == "blend") return blend(value);
  if (field == "world_size") return ranks(value, context);
  if (field == "data_path") {
    text::YamlNode list = node;
    list.kind = NodeKind::kList;
    if (node.kind == NodeKind::kScalar) {
      for (const std::string& item : items_of(node)) {
        list.items.push_back(scalar_node(item, node.place));
      }
    }
    return give(value, "data-path", list);
  }
  if (field == "attention_backend") {
    static constexpr std::string_view kBackends[] = {"flash", "fused", "unfused", "local", "auto"};
    const text::YamlEntry* arguments = node.kind == NodeKind::kMap ? node.find("_args_") : nullptr;
    const auto number = arguments != nullptr && !arguments->value.items.empty()
                            ? whole_value(arguments->value.items[0].text)
                            : whole_value(node.text);
    const bool numbered = number && *number >= 1 && *number <= 5;
    return give(value, "attention-backend",
                std::string(numbered ? kBackends[*number - 1] : last_word(node)));
  }
  if (field == "fp8" || field == "fp8_format") {
    if (is_off(node)) return;
    const bool is_true = bool_value(node) == true;
    return give(value, "fp8-format",
                is_true ? (boolean("fp8_e4m3").value_or(false) ? "e4m3" : "hybrid") : node.text);
  }
  if (field == "fp4") {
    if (!is_off(node)) give(value, "fp4-format", node.text);
    return;
  }
  if (field == "grad_reduce_in_fp32") {
    const bool fp32 = bool_value(node).value_or(true);
    return give(value, fp32 ? "accumulate-allreduce-grads-in-fp32" : "grad-reduce-in-bf16", "true");
  }
  if (field == "fsdp") {
    if (is_off(node)) return;
    if (bool_value(node) == true) return give(value, "use-torch-fsdp2", "true");
    if (node.text != "megatron" && node.text != "pytorch") {
      return error(value,
                   fmt::format("expected megatron or pytorch, not {}", text::described(node)));
    }
    return give(value, node.text == "megatron" ? "use-megatron-fsdp" : "use-torch-fsdp2", "true");
  }
  if (field.ends_with("_dtype")) {
    const std::string type = last_word(node);
    std::string flag = field;
    std::ranges::replace(flag, '_', '-');
    return give(value, flag, flag_word(type));
  }
  if (field == "deterministic_mode") {
    if (bool_value(node) == true) flags_.set("training.deterministic", "true", value.shown);
    return;
  }
  if (field == "lr_warmup_iters" || field == "lr_warmup_samples") {
    if (node.text == "0") return;  // its default, beside which a fraction may stand
    return give(value, field == "lr_warmup_iters" ? "lr-warmup-iters" : "lr-warmup-samples", node);
  }
  if (field == "expert_tensor_parallel_size") {
    const bool experts = has("num_experts") || has("num_moe_experts") ||
                         whole("expert_model_parallel_size").value_or(1) > 1;
    if (experts) give(value, "expert-tensor-parallel-size", node);
    return;
  }
  if (field == "should_pad_vocab") {
    const text::YamlNode* rows = find("vocab_size");
    if (bool_value(node) == false && rows != nullptr && !has("padded_vocab_size")) {
      give(value, "pad-vocab-size-to", *rows);
    }
    return;
  }
  if (field == "betas") {
    const std::vector<std::string> both = items_of(node);
    if (both.size() != 2) return error(value, "expected two numbers");
    give(value, "adam-beta1", both[0]);
    return give(value, "adam-beta2", both[1]);
  }
  if (field == "name") {
    const bool shards =
        node.text.starts_with("distributed_") || node.text == "mcore_distributed_optim";
    const bool adam = node.text.find("adam") != std::string::npos || shards;
    if (shards) give(value, "use-distributed-optimizer", "true");
    return give(value, "optimizer", adam ? "adam" : node.text);
  }
  if (field == "devices") {
    const auto count = node.kind == NodeKind::kList
                           ? std::optional(static_cast<int64_t>(node.items.size()))
                           : whole_value(node.text);
    if (count && *count > 0) give(value, "nproc-per-node", fmt::format("{}", *count));
  }
}

void MegatronFields::finish(const ImportContext& context) {
  activation();
  key_value_heads();
  virtual_stages();
  for (const Value& value : values_) {
    if (is_none(value.node)) continue;
    const MegatronField row = *megatron_field(value.field);
    switch (row.use) {
      case FieldUse::kValue:
      case FieldUse::kTrue:
      case FieldUse::kFalse: give_row(value, row); break;
      case FieldUse::kOwn: own(value, context); break;
      case FieldUse::kIgnored: break;
      case FieldUse::kRefused:
        if (!is_one_of(row.neutral, value.node)) error(value, std::string(row.meaning));
        break;
      case FieldUse::kWarned:
        // What is off needs no words, unless it is on as a rule.
        if (!is_one_of(row.neutral, value.node) &&
            (!is_off(value.node) || row.neutral.starts_with("true"))) {
          warn(value, std::string(row.meaning));
        }
        break;
    }
  }
  stage_ends();
}

}  // namespace smp::importers
