#include <fmt/format.h>

#include <cmath>

#include "importers/adapters.h"
#include "importers/foreign_keys.h"
#include "importers/fsdp_words.h"
#include "importers/named_model.h"
#include "importers/trainer_words.h"

// An axolotl configuration (YAML) as keys of a job file. Defaults: axolotl's utils/schemas.
namespace smp::importers {
namespace {

class AxolotlFile {
 public:
  AxolotlFile(ForeignReader& reader, const ImportContext& context, Imported& out)
      : reader_(reader), known_(context), out_(out) {}

  void read() {
    reader_.copy_all();
    const std::string name = reader_.has("base_model_config") ? "base_model_config" : "base_model";
    add_named_model(name, reader_.place(name), reader_.text(name).value_or(""), known_, out_);
    method();
    batch();
    precision();
    degrees();
    sharding();
    memory();
    optimizer();
  }

 private:
  bool is_true(std::string_view key) const {
    const auto word = reader_.text(key);
    return word == "true" || word == "True";
  }

  // The key with or without "fsdp_", as both occur.
  std::string fsdp_key(std::string_view name) const {
    const std::string plain = fmt::format("fsdp_config.{}", name);
    return reader_.has(plain) ? plain : fmt::format("fsdp_config.fsdp_{}", name);
  }

  void method() {
    const std::string adapter = reader_.text("adapter").value_or("");
    if (is_low_rank(adapter)) {
      adapters();
    } else {
      if (!adapter.empty()) warn_adapter(adapter, reader_.place("adapter"), out_);
      for (const char* key : {"load_in_4bit", "load_in_8bit"}) {
        if (is_true(key)) warn_quantized(reader_, key);
      }
    }
    if (is_true("gptq")) warn_quantized(reader_, "gptq");
    const text::YamlNode* some = reader_.node("unfrozen_parameters");
    if (some != nullptr && !some->items.empty()) {
      reader_.warn("unfrozen_parameters", "unfrozen_parameters: the plan trains all weights");
    }
  }

  void adapters() {
    constexpr const char* kDouble = "bnb_config_kwargs.bnb_4bit_use_double_quant";
    Adapters lora;
    lora.place = reader_.place("adapter");
    lora.rank = adapter_value(reader_, "lora_r", "8");
    lora.alpha = adapter_value(reader_, "lora_alpha", "");
    lora.dropout = adapter_value(reader_, "lora_dropout", "");
    if (is_true("load_in_4bit")) {
      const bool twice = reader_.boolean(kDouble).value_or(true);
      lora.quantized = {twice ? "nf4_double" : "nf4", "load_in_4bit"};
    } else if (is_true("load_in_8bit")) {
      lora.quantized = {"int8", "load_in_8bit"};
    }
    const text::YamlNode* modules = reader_.node("lora_target_modules");
    const bool all = is_true("lora_target_linear") || modules == nullptr;
    if (!all) lora.modules = words_of(*modules);
    lora.modules_origin = is_true("lora_target_linear") ? "lora_target_linear"
                          : all                         ? "no lora_target_modules"
                                                        : "lora_target_modules";
    set_adapters_of(reader_, lora, "lora_target_modules", out_);
    warn_beside_adapters(reader_, "lora_modules_to_save", "peft_use_dora");
    const text::YamlNode* parameters = reader_.node("lora_target_parameters");
    if (parameters != nullptr && !words_of(*parameters).empty()) {
      reader_.warn("lora_target_parameters",
                   "lora_target_parameters: the plan has no adapters there");
    }
    if (reader_.node("peft_layers_to_transform") != nullptr) {
      reader_.warn("peft_layers_to_transform",
                   "peft_layers_to_transform: the plan has adapters in all layers");
    }
  }

  void batch() {
    reader_.set_by("sequence_len", "training.sequence_length",
                   reader_.whole("sequence_len").value_or(512));
    const int64_t micro = reader_.whole("micro_batch_size").value_or(1);
    reader_.set_by("micro_batch_size", "training.micro_batch", micro);
    const auto all = reader_.whole("batch_size");
    if (all && !reader_.has("gradient_accumulation_steps")) {
      if (*all % micro != 0) {
        reader_.error("batch_size", fmt::format("batch_size ({}) is not divisible by "
                                                "micro_batch_size ({})",
                                                *all, micro));
        return;
      }
      reader_.set_by("batch_size", "training.microbatches", *all / micro);
      return;
    }
    reader_.set_by("gradient_accumulation_steps", "training.microbatches",
                   reader_.whole("gradient_accumulation_steps").value_or(1));
  }

  // The model is loaded in 16 bits. accelerate's FSDP makes fp32 weights of them but where nothing
  // is mixed, DeepSpeed has fp32 ones beside them, and adapters are fp32 (loaders/model.py).
  void weights_of_16_bits(bool bf16) {
    std::string key;
    if (is_true("bfloat16") || is_true("float16")) {
      key = is_true("bfloat16") ? "bfloat16" : "float16";
    } else if (reader_.text("bf16") == "full" || reader_.text("fp16") == "full") {
      key = reader_.text("bf16") == "full" ? "bf16" : "fp16";
    } else if (bf16 && !reader_.has("fsdp") && !reader_.has("fsdp_config") &&
               !reader_.has("adapter")) {
      key = "bf16";
    }
    if (key.empty() || reader_.has("deepspeed")) return;
    set_half_states(reader_, key, key.front() == 'f', reader_.text("optimizer").value_or(""));
  }

  void precision() {
    const auto on = [&](const char* key) {
      const std::string word = reader_.text(key).value_or("false");
      return word != "false" && word != "False";
    };
    weights_of_16_bits(on("bf16"));
    const std::string key = is_true("fp8")                       ? "fp8"
                            : on("fp16") && !on("bf16")          ? "fp16"
                            : is_true("float16") && !on("bf16")  ? "float16"
                            : is_true("bfloat16") && !on("bf16") ? "bfloat16"
                                                                 : "bf16";
    const bool half = key != "bf16" || on("bf16");
    reader_.set_by(key, "training.precision",
                   std::string(!half                               ? "fp32"
                               : key == "fp8"                      ? "fp8"
                               : key == "fp16" || key == "float16" ? "fp16"
                                                                   : "bf16"));
  }

  void degrees() {
    tensor_ = reader_.whole("tensor_parallel_size").value_or(1);
    const std::string context = reader_.has("sequence_parallel_degree") ? "sequence_parallel_degree"
                                                                        : "context_parallel_size";
    context_ = reader_.whole(context).value_or(1);
    reader_.set_by("tensor_parallel_size", "parallel.tensor_parallel_degree", tensor_);
    reader_.set("parallel.pipeline_parallel_degree", "1", "no pipeline");
    reader_.set_by(context, "parallel.context_parallel_degree", context_);
    if (const auto experts = reader_.whole("expert_parallel_size"); experts && *experts > 1) {
      reader_.set_by("expert_parallel_size", "parallel.expert_parallel_degree", *experts);
    }
  }

  void sharding() {
    if (set_deepspeed_or_fsdp(reader_, known_)) return;
    out_.assume("parallel.framework");
    FsdpSharding fsdp;
    read_trainers_fsdp(reader_, fsdp);
    const bool two = reader_.whole("fsdp_version")
                         .value_or(reader_.whole("fsdp_config.fsdp_version").value_or(1)) == 2;
    const bool by_config = reader_.has(fsdp_key("reshard_after_forward")) ||
                           reader_.has(fsdp_key("sharding_strategy")) ||
                           reader_.has(fsdp_key("offload_params"));
    if (fsdp.key.empty() && (two || by_config || reader_.has("dp_shard_size") || context_ > 1)) {
      fsdp.kind = "parameters";
      if (two || by_config) fsdp.origin = two ? "fsdp_version" : "fsdp_config";
    }
    read_fsdp_strategy(reader_, fsdp_key("sharding_strategy"), fsdp);
    read_fsdp_strategy(reader_, fsdp_key("reshard_after_forward"), fsdp);
    const std::string offload = fsdp_key("offload_params");
    if (reader_.boolean(offload).value_or(false)) fsdp.offload_key = offload;
    set_fsdp_offload(reader_, fsdp);
    degree(fsdp);
  }

  void degree(const FsdpSharding& fsdp) {
    const auto shard = reader_.whole("dp_shard_size");
    const auto replicas = reader_.whole("dp_replicate_size");
    const auto world = known_.world();
    if (shard && world) {
      const int64_t product = product_of({*shard, replicas.value_or(1), tensor_, context_});
      if (product != *world) {
        reader_.error(
            "dp_shard_size",
            fmt::format("dp_replicate_size x dp_shard_size x tensor_parallel_size x "
                        "context_parallel_size = {} x {} x {} x {} = {}, but there are "
                        "{} ranks",
                        replicas.value_or(1), *shard, tensor_, context_, product, *world));
        return;
      }
    }
    if (shard) {
      reader_.set("parallel.sharding", *shard > 1 ? fsdp.kind : "none", fsdp.origin);
      if (*shard > 1)
        reader_.set_by("dp_shard_size", "parallel.sharded_data_parallel_degree", *shard);
    } else {
      set_fsdp_sharding(reader_, fsdp, known_, context_, tensor_, 1);
    }
  }

  void memory() {
    const std::string inside = fsdp_key("activation_checkpointing");
    const std::string word = reader_.text("gradient_checkpointing").value_or("false");
    const bool full = word != "false" && word != "False";
    const bool in_fsdp = reader_.boolean(inside).value_or(false);
    reader_.set_by(!full && in_fsdp ? inside : "gradient_checkpointing", "parallel.recompute",
                   std::string(full || in_fsdp ? "full" : "none"));
    const std::string offload = reader_.text("activation_offloading").value_or("false");
    const bool moves = offload != "false" && offload != "False";
    if (word.starts_with("offload") || word == "unsloth") {
      reader_.set_by("gradient_checkpointing", "parallel.offload_activations", std::string("true"));
    } else if (moves) {
      reader_.set_by("activation_offloading", "parallel.offload_activations", std::string("true"));
    }
    if (word == "offload_disk" || offload == "disk") {
      reader_.warn(word == "offload_disk" ? "gradient_checkpointing" : "activation_offloading",
                   "the plan offloads activations to host memory, not to a disk");
    }
    if (const auto kind = reader_.text("attn_implementation")) {
      set_attention_word(reader_, "attn_implementation", *kind);
    } else {
      for (const char* key :
           {"flash_attention", "xformers_attention", "sdp_attention", "flex_attention"}) {
        if (!is_true(key)) continue;
        reader_.set_by(key, "training.attention", std::string("flash"));
        break;
      }
    }
    for (const char* key :
         {"liger_fused_linear_cross_entropy", "liger_cross_entropy", "cut_cross_entropy",
          "flash_attn_cross_entropy", "chunked_cross_entropy"}) {
      if (!is_true(key)) continue;
      reader_.set_by(key, "training.fused_loss", std::string("true"));
      break;
    }
    const std::string compile = reader_.text("torch_compile").value_or("false");
    if (compile == "auto" || is_true("torch_compile")) {
      reader_.set_by("torch_compile", "training.compiled", std::string("true"));
    }
    if (is_true("tiled_mlp")) {
      reader_.warn("tiled_mlp", "tiled_mlp: the plan runs an MLP in one piece");
    }
  }

  void optimizer() {
    if (const auto word = reader_.text("optimizer")) {
      set_optimizer_word(reader_, "optimizer", *word);
    }
    if (const auto word = reader_.text("lr_scheduler")) {
      set_schedule_word(reader_, "lr_scheduler", *word);
    }
    const auto given = reader_.number("warmup_steps");
    const bool counts = given && (*given >= 1 || *given == 0);
    const std::string key = given ? "warmup_steps" : "warmup_ratio";
    const auto ratio = given ? given : reader_.number(key);
    const auto steps = reader_.whole("max_steps");
    if (counts || (ratio && steps)) {
      reader_.set_by(key, "training.optimizer.warmup_steps",
                     static_cast<int64_t>(
                         std::llround(counts ? *given : *ratio * static_cast<double>(*steps))));
    }
  }

  ForeignReader& reader_;
  const ImportContext& known_;
  Imported& out_;
  int64_t tensor_ = 1;
  int64_t context_ = 1;
};

}  // namespace

void read_axolotl(const text::YamlNode& root, text::Diagnostics& diagnostics,
                  const ImportContext& context, Imported& out) {
  ForeignReader reader(axolotl_keys(), diagnostics, out);
  reader.read(root, "", UnknownKeys::kWarning);
  AxolotlFile(reader, context, out).read();
}

}  // namespace smp::importers
