#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/adapters.h"
#include "importers/foreign_keys.h"
#include "importers/megatron_fields.h"
#include "importers/megatron_line.h"
#include "importers/named_model.h"
#include "importers/nemo_command.h"
#include "importers/nemo_recipes.h"
#include "importers/printed_config.h"
#include "importers/yaml_formats.h"
#include "importers/yaml_references.h"

// A configuration of Megatron Bridge (ConfigContainer), of NeMo 2 (fiddle's YAML of a recipe) or of
// NeMo 1, a line that starts a recipe, or a log that prints a configuration, as keys of a job file.
namespace smp::importers {
namespace {

// Maps whose keys are fields of Megatron, or of the file's own trainer.
constexpr std::array<std::string_view, 26> kGroups = {"model",
                                                      "model.config",
                                                      "model.optim",
                                                      "model.optim.sched",
                                                      "model.data",
                                                      "trainer",
                                                      "trainer.strategy",
                                                      "trainer.strategy.ddp",
                                                      "trainer.plugins",
                                                      "strategy",
                                                      "data",
                                                      "dataset",
                                                      "train",
                                                      "optimizer",
                                                      "optim",
                                                      "optim.config",
                                                      "optim.lr_scheduler",
                                                      "scheduler",
                                                      "ddp",
                                                      "dist",
                                                      "mixed_precision",
                                                      "comm_overlap",
                                                      "rng",
                                                      "validation",
                                                      "run",
                                                      "plugins"};

// The default of Megatron Bridge's MixedPrecisionConfig, which reaches its optimizer without fp8
// too.
constexpr const char* kBridgeFp8Recipe = "tensorwise";

// What no plan depends on. "trainer.callbacks" is a key, and "logger" a whole section.
constexpr std::array<std::string_view, 53> kLeftOut = {"logger",
                                                       "log",
                                                       "resume",
                                                       "checkpoint",
                                                       "tokenizer",
                                                       "profiling",
                                                       "ft",
                                                       "straggler",
                                                       "nvrx_straggler",
                                                       "inprocess_restart",
                                                       "rerun_state_machine",
                                                       "tensor_inspect",
                                                       "env_vars",
                                                       "exp_manager",
                                                       "name",
                                                       "defaults",
                                                       "hydra",
                                                       "restore_from_path",
                                                       "optimizer_config_override_provider",
                                                       "model.tokenizer",
                                                       "model.name",
                                                       "model.generation_config",
                                                       "model.optim.sched.name",
                                                       "model.optim.sched.constant_steps",
                                                       "model.data.dataloader_type",
                                                       "model.data.exchange_indices_distributed",
                                                       "data.tokenizer",
                                                       "data.paths",
                                                       "data.dataset",
                                                       "dataset.context_parallel_size",
                                                       "dataset.sequence_parallel_size",
                                                       "dataset.data_parallel_size",
                                                       "dataset.dataset_name",
                                                       "trainer.accelerator",
                                                       "trainer.callbacks",
                                                       "trainer.limit_val_batches",
                                                       "trainer.limit_test_batches",
                                                       "trainer.limit_train_batches",
                                                       "trainer.log_every_n_steps",
                                                       "trainer.val_check_interval",
                                                       "trainer.use_distributed_sampler",
                                                       "trainer.logger",
                                                       "trainer.enable_checkpointing",
                                                       "trainer.benchmark",
                                                       "trainer.enable_model_summary",
                                                       "trainer.num_sanity_val_steps",
                                                       "trainer.max_epochs",
                                                       "trainer.max_time",
                                                       "trainer.enable_progress_bar",
                                                       "trainer.replace_sampler_ddp",
                                                       "trainer.check_val_every_n_epoch",
                                                       "trainer.detect_anomaly",
                                                       "trainer.default_root_dir"};

bool in(const auto& list, std::string_view path) { return std::ranges::count(list, path) > 0; }

text::YamlNode word_at(std::string text, text::Place place) {
  text::YamlNode node;
  node.kind = NodeKind::kScalar;
  node.place = place;
  node.text = std::move(text);
  return node;
}

class NemoFile {
 public:
  NemoFile(text::Diagnostics& diagnostics, const ImportContext& context, Imported& out)
      : flags_(megatron_keys(), diagnostics, out),
        fields_(flags_, out),
        context_(context),
        out_(out) {}

  // What the command line and the file say must be one recipe.
  void check_recipe(const std::string& name, text::Place place) {
    if (context_.recipe.empty() || context_.recipe == name) return;
    flags_.error_at(place, fmt::format("the recipe is {} here, but --recipe gives {}: remove one",
                                       name, context_.recipe));
  }

  // The values of a recipe, which those of the file replace.
  void recipe(const std::string& name, text::Place place) {
    const NemoRecipe* found = find_nemo_recipe(name);
    if (found == nullptr) {
      flags_.error_at(place, unknown_nemo_recipe(name));
      return;
    }
    text::Diagnostics quiet;
    const std::string text(found->values);
    text::YamlTree tree = text::parse_yaml(text, quiet.add_source(name, text), quiet);
    recipe_ = name;
    at_ = place;
    model_ = std::string(found->model);
    model_key_ = "recipe " + name;
    // recipes/common.py and utils/optimizer_utils.py; NeMo's recipes have the same.
    for (const auto& [field, value] :
         {std::pair{"use_distributed_optimizer", "true"}, std::pair{"lr", "3e-4"},
          std::pair{"min_lr", "3e-5"}, std::pair{"lr_decay_style", "cosine"},
          std::pair{"weight_decay", "0.1"}, std::pair{"adam_beta2", "0.95"},
          std::pair{"adam_eps", "1e-5"}, std::pair{"clip_grad", "1.0"}}) {
      take(field, model_key_, place, word_at(value, place));
    }
    precision("bf16_mixed", model_key_, place);
    visit(tree.root, "");
    recipe_.clear();
  }

  void read(const text::YamlNode& root) {
    // What Megatron Bridge's mixed_precision says replaces the other sections' fields.
    std::vector<const text::YamlEntry*> last;
    for (const text::YamlEntry& entry : root.entries) {
      if (entry.key == "recipe") continue;
      if (entry.key == "mixed_precision" || entry.key == "ddp") {
        last.push_back(&entry);
      } else {
        entry_of(entry, "");
      }
    }
    std::ranges::stable_sort(last, {}, [](const auto* entry) { return entry->key != "ddp"; });
    for (const text::YamlEntry* entry : last) entry_of(*entry, "");
  }

  void field(const std::string& path, text::Place place, const text::YamlNode& value) {
    entry_of({path.substr(path.rfind('.') + 1), place, value},
             path.find('.') == path.npos ? "" : path.substr(0, path.rfind('.') + 1));
  }

  void finish() {
    const bool own = fields_.has("num_layers") && fields_.has("hidden_size");
    const bool named = !own && !model_.empty();
    if (named) {
      add_named_model(model_key_, at_, model_, context_, out_);
    }
    fields_.finish(context_);
    MegatronLine(flags_, context_, own && !context_.num_layers, "nemo").read();
  }

 private:
  void take(const std::string& name, const std::string& shown, text::Place place,
            const text::YamlNode& value) {
    const std::string of = recipe_.empty() ? shown : "recipe " + recipe_;
    const auto row = megatron_field(name);
    const bool matters = row && row->use != FieldUse::kIgnored;
    const bool missing = value.kind == NodeKind::kScalar && value.text == "???";
    if (missing && name == "data_path") return;
    if (matters && value.kind == NodeKind::kScalar &&
        (missing || value.text.find("${") != value.text.npos)) {
      flags_.error_at(value.place, fmt::format("{} is {}, whose value this file does not give: "
                                               "write the value instead",
                                               shown, value.text));
      return;
    }
    if (fields_.take(name, of, place, value, !recipe_.empty())) return;
    flags_.report_unknown(shown, place, UnknownKeys::kWarning);
  }

  void visit(const text::YamlNode& map, const std::string& prefix) {
    for (const text::YamlEntry& entry : map.entries) entry_of(entry, prefix);
  }

  void entry_of(const text::YamlEntry& entry, const std::string& prefix) {
    const std::string path = prefix + entry.key;
    const text::YamlNode& value = entry.value;
    const text::Place place = recipe_.empty() ? entry.place : at_;
    // The number of hosts is a recipe's proposal.
    if (!recipe_.empty() && ((path == "trainer.num_nodes" && context_.hosts) ||
                             (path == "trainer.devices" && context_.processes_per_host))) {
      return;
    }
    if (entry.key == "_target_") return target(prefix, value);
    if (entry.key.starts_with('_')) return;
    if (path == "name") refuse_other_model(entry);
    if (path == "model.encoder" || path == "model.decoder") {
      flags_.error_at(place, path + ": models with an encoder are not supported");
    } else if (in(kLeftOut, path)) {
      if (recipe_.empty()) flags_.leave_out(path);
    } else if (path == "peft" || path == "model.peft" || path == "model_transform") {
      adapter(path, entry);
    } else if (path == "mixed_precision" && value.kind == NodeKind::kScalar) {
      precision(value.text, path, value.place);
    } else if (entry.key == "precision" &&
               (prefix == "trainer." || prefix == "trainer.plugins." || prefix == "plugins.")) {
      precision(value.text, path, value.place);
    } else if (path == "model.optim.sched" || path == "optim.lr_scheduler") {
      schedule(value, path);
      visit(value, path + ".");
    } else if (path == "trainer.plugins" && value.kind == NodeKind::kList) {
      for (const text::YamlNode& item : value.items) visit(item, path + ".");
    } else if (value.kind == NodeKind::kMap && in(kGroups, path)) {
      if (path == "mixed_precision" && value.find("fp8_recipe") == nullptr) {
        take("fp8_recipe", path, place, word_at(kBridgeFp8Recipe, place));
      }
      visit(value, path + ".");
    } else if (in(kGroups, path) && value.kind == NodeKind::kNull) {
      return;
    } else if (path == "model.data.data_prefix" || path == "data.paths") {
      take("data_path", path, place, value);
    } else if (path == "model.data.splits_string") {
      take("split", path, place, value);
    } else {
      take(entry.key, path, place, scalar_of(value));
    }
  }

  // NeMo 1 calls its files by the kind of model.
  void refuse_other_model(const text::YamlEntry& entry) {
    for (const std::string_view kind :
         {"bert", "t5", "bart", "retro", "mamba", "griffin", "jamba", "hyena"}) {
      if (entry.value.text.find(kind) == std::string::npos) continue;
      flags_.error_at(entry.value.place,
                      fmt::format("{} is no plain text decoder: only such models are supported",
                                  entry.value.text));
      return;
    }
  }

  // {_target_: torch.float32, _call_: false} stays a map; MegatronFields reads its name.
  static text::YamlNode scalar_of(text::YamlNode value) {
    if (value.kind == NodeKind::kScalar) value.quoted = false;
    return value;
  }

  void target(const std::string& prefix, const text::YamlNode& value) {
    if (prefix != "model.config." && (prefix != "model." || !model_.empty())) return;
    const std::string name = value.text.substr(value.text.rfind('.') + 1);
    const bool sized = name.find("Config") != name.npos || name.find("Provider") != name.npos;
    const bool has_digits = name.find_first_of("0123456789") != name.npos;
    if (!sized || !has_digits) return;
    model_ = name;
    model_key_ = prefix + "_target_";
    at_ = value.place;
  }

  void adapter(const std::string& path, const text::YamlEntry& entry) {
    const text::YamlNode& value = entry.value;
    if (value.kind == NodeKind::kNull || value.text == "none" || value.text == "null") return;
    const text::YamlEntry* name = value.kind == NodeKind::kMap ? value.find("_target_") : nullptr;
    const text::YamlEntry* scheme =
        value.kind == NodeKind::kMap ? value.find("peft_scheme") : nullptr;
    if (name == nullptr && scheme != nullptr) name = scheme;
    std::string kind = name != nullptr ? name->value.text : value.text;
    if (name != nullptr && (kind == "none" || kind == "null" || kind.empty())) return;
    kind = kind.substr(kind.rfind('.') + 1);
    if (!is_low_rank(kind)) {
      warn_adapter(kind.empty() ? path : kind, entry.place, out_);
      return;
    }
    low_rank(kind, path, entry);
  }

  // LoRA of Megatron-Bridge and NeMo 2 (peft/lora.py, peft/canonical_lora.py), or NeMo 1's
  // lora_tuning.
  void low_rank(const std::string& kind, const std::string& path, const text::YamlEntry& entry) {
    const bool is_map = entry.value.kind == NodeKind::kMap;
    const text::YamlEntry* group = is_map ? entry.value.find("lora_tuning") : nullptr;
    const bool first = group != nullptr && group->value.kind == NodeKind::kMap;
    const text::YamlNode& map = first ? group->value : entry.value;
    const std::string prefix = path + (first ? ".lora_tuning." : ".");
    const auto value = [&](std::string_view key, const char* absent) -> AdapterValue {
      const text::YamlEntry* given = map.kind == NodeKind::kMap ? map.find(key) : nullptr;
      if (given == nullptr || given->value.kind == NodeKind::kNull) {
        return {absent, fmt::format("no {}{}", prefix, key)};
      }
      const auto number = number_value(given->value.text);
      if (given->value.kind != NodeKind::kScalar || !number || *number < 0) {
        flags_.error_at(given->value.place,
                        fmt::format("{}{} must be a number of at least 0, not {}", prefix, key,
                                    text::described(given->value)));
        return {absent, fmt::format("{}{}", prefix, key)};
      }
      return {given->value.text, fmt::format("{}{}", prefix, key)};
    };
    Adapters lora;
    lora.place = entry.place;
    lora.rank = value(first ? "adapter_dim" : "dim", "32");
    lora.alpha = value("alpha", "32");
    lora.dropout = value(first ? "adapter_dropout" : "dropout", "");
    const text::YamlEntry* modules = is_map ? map.find("target_modules") : nullptr;
    if (modules != nullptr) lora.modules = words_of(modules->value);
    lora.modules_origin =
        fmt::format("{}{}target_modules", lora.modules.empty() ? "no " : "", prefix);
    if (lora.modules.empty()) {
      if (first) {
        lora.modules = {"attention_qkv"};
      } else if (kind.find("Canonical") != kind.npos) {
        lora.modules = {"linear_q",      "linear_k",        "linear_v",  "linear_proj",
                        "linear_fc1_up", "linear_fc1_gate", "linear_fc2"};
      } else {
        lora.modules = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
      }
    }
    const std::string problem = set_adapters(lora, out_);
    if (!problem.empty()) flags_.error_at(entry.place, problem);
    if (kind.find("DoRA") != kind.npos || kind.find("dora") != kind.npos) {
      out_.warnings.push_back(fmt::format("{}:{}:{}: {}: DoRA is priced as LoRA", out_.file,
                                          entry.place.line, entry.place.column, path));
    }
  }

  void schedule(const text::YamlNode& value, const std::string& path) {
    for (const std::string_view key : {"name", "_target_"}) {
      const text::YamlEntry* word = value.kind == NodeKind::kMap ? value.find(key) : nullptr;
      if (word == nullptr) continue;
      const std::string& name = word->value.text;
      const auto says = [&](std::string_view part) { return name.find(part) != name.npos; };
      const std::string style = says("Cosine")                              ? "cosine"
                                : says("Hold") || says("Constant")          ? "constant"
                                : says("WarmupAnnealing") || says("Linear") ? "linear"
                                                                            : name;
      take("lr_decay_style", fmt::format("{}.{}", path, key), word->place,
           word_at(style, word->value.place));
    }
  }

  // mixed_precision.py of Megatron Bridge, and the words of Lightning's trainer.
  void precision(const std::string& given, const std::string& shown, text::Place place) {
    std::string word = given;
    std::ranges::replace(word, '-', '_');
    const auto says = [&](std::string_view part) { return word.find(part) != word.npos; };
    const auto set = [&](const char* field, const char* value) {
      take(field, shown, place, word_at(value, place));
    };
    const bool bf16 = says("bf16");
    const bool fp16 = !bf16 && (word.starts_with("fp16") || word.starts_with("16"));
    const bool fp32 = word.starts_with("32") || word.starts_with("fp32");
    if (!bf16 && !fp16 && !fp32) {
      flags_.error_at(place, fmt::format("{}: {} is not a precision of NeMo or Megatron Bridge, as "
                                         "bf16_mixed is",
                                         shown, text::quoted_for_message(given)));
      return;
    }
    set("bf16", bf16 ? "true" : "false");
    set("fp16", fp16 ? "true" : "false");
    if (says("mixed") && !fp32) set("grad_reduce_in_fp32", bf16 ? "true" : "false");
    if (says("nvfp4")) {
      set("fp4", "e2m1");
      set("fp4_param_gather", "true");
    }
    if (!says("fp8") && bf16 && shown == "mixed_precision") set("fp8_recipe", kBridgeFp8Recipe);
    if (!says("fp8")) return;
    set("fp8", says("mxfp8") ? "e4m3" : "hybrid");
    set("fp8_recipe", says("mxfp8")             ? "mxfp8"
                      : says("subchannel")      ? "blockwise"
                      : says("nanov2")          ? "blockwise"
                      : says("current_scaling") ? "tensorwise"
                                                : "delayed");
    if (!says("subchannel")) set("fp8_param_gather", "true");
    if (says("current_scaling")) set("first_last_layers_bf16", "true");
  }

  ForeignReader flags_;
  MegatronFields fields_;
  const ImportContext& context_;
  Imported& out_;
  std::string recipe_;  // whose values are being read
  std::string model_;   // a name, where the file gives no sizes
  std::string model_key_;
  text::Place at_;
};

}  // namespace

void read_nemo(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
               const ImportContext& context, Imported& out) {
  NemoFile file(diagnostics, context, out);
  const text::Place start{number, 1, 1};
  if (!context.recipe.empty()) file.recipe(context.recipe, start);
  text::Diagnostics quiet;
  const std::string text = printed_nemo_config(source.text);
  const text::YamlNode root = text::parse_yaml(text, quiet.add_source("", text), quiet).root;
  if (yaml_format(root) != ForeignFormat::kNemo && is_nemo_command(source.text)) {
    const NemoCommand command = read_nemo_command(source.text, number, diagnostics, context, out);
    if (!command.recipe.empty()) {
      file.check_recipe(command.recipe, command.recipe_place);
      file.recipe(command.recipe, command.recipe_place);
    }
    for (const NemoOverride& given : command.overrides) {
      file.field(given.path, given.place, given.value);
    }
    file.finish();
    return;
  }
  text::YamlTree tree = text::parse_yaml(text, number, diagnostics);
  if (diagnostics.any()) return;
  follow_references(tree.root);
  const text::YamlEntry* recipe = tree.root.find("recipe");
  if (recipe != nullptr && recipe->value.kind == NodeKind::kScalar) {
    file.check_recipe(recipe->value.text, recipe->value.place);
    file.recipe(recipe->value.text, recipe->value.place);
  }
  file.read(tree.root);
  file.finish();
}

}  // namespace smp::importers
