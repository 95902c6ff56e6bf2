#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "importers/adapters.h"
#include "importers/foreign_keys.h"
#include "importers/named_model.h"
#include "importers/smp_dictionary.h"
#include "importers/trainer_words.h"

// A NeMo Automodel configuration (YAML) as keys of a job file. Source: nemo_automodel/recipes/llm
// and nemo_automodel/components/distributed.
namespace smp::importers {
namespace {

constexpr std::string_view kMesh = "distributed.";

class AutomodelFile {
 public:
  AutomodelFile(ForeignReader& reader, const ImportContext& context, Imported& out)
      : reader_(reader), known_(context), out_(out) {}

  void read() {
    reader_.copy_all();
    recipe();
    model();
    degrees();
    batch();
    precision();
    sharding();
    schedule();
    memory();
    optimizer();
  }

 private:
  bool is_true(std::string_view key) const { return reader_.boolean(key).value_or(false); }

  static std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

  void recipe() {
    const text::YamlNode* given = reader_.node("recipe");
    const text::YamlEntry* target = given != nullptr ? given->find("_target_") : nullptr;
    const std::string name = last_part(target != nullptr  ? target->value.text
                                       : given != nullptr ? given->text
                                                          : "");
    const bool other = name.find("Distillation") != name.npos || name.find("VLM") != name.npos ||
                       name.find("Classification") != name.npos || name.find("Diff") != name.npos;
    if (other) {
      reader_.error("recipe", fmt::format("the recipe {} is not supported; supported are recipes "
                                          "that predict the next token",
                                          text::quoted_for_message(name)));
    }
    const auto kind = reader_.text("peft._target_");
    const bool low_rank = kind && is_low_rank(*kind);
    if (low_rank) adapters();
    if (kind && !low_rank) warn_adapter(last_part(*kind), reader_.place("peft._target_"), out_);
    for (const char* key : {"quantization.load_in_4bit", "quantization.load_in_8bit"}) {
      if (!low_rank && is_true(key)) warn_quantized(reader_, key);
    }
  }

  void adapters() {
    Adapters lora;
    lora.place = reader_.place("peft._target_");
    lora.rank = adapter_value(reader_, "peft.dim", "8");
    lora.alpha = adapter_value(reader_, "peft.alpha", "32");
    lora.dropout = adapter_value(reader_, "peft.dropout", "");
    if (is_true("quantization.load_in_4bit")) {
      const bool twice = reader_.boolean("quantization.bnb_4bit_use_double_quant").value_or(true);
      lora.quantized = {twice ? "nf4_double" : "nf4", "quantization.load_in_4bit"};
    } else if (is_true("quantization.load_in_8bit")) {
      lora.quantized = {"int8", "quantization.load_in_8bit"};
    }
    const text::YamlNode* modules = reader_.node("peft.target_modules");
    if (modules != nullptr) lora.modules = words_of(*modules);
    lora.modules_origin = lora.modules.empty() ? "no peft.target_modules" : "peft.target_modules";
    set_adapters_of(reader_, lora, "peft.target_modules", out_);
    warn_beside_adapters(reader_, "", "peft.use_dora");
    const text::YamlNode* without = reader_.node("peft.exclude_modules");
    if (without != nullptr && !without->items.empty()) {
      reader_.warn("peft.exclude_modules", "peft.exclude_modules: the plan has adapters there too");
    }
  }

  void model() {
    for (const char* key :
         {"model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path",
          "model.config.name_or_path"}) {
      const auto name = reader_.text(key);
      if (!name) continue;
      add_named_model(key, reader_.place(key), *name, known_, out_);
      break;
    }
    const ImportedKey* layers = out_.find("model.num_layers");
    if (layers != nullptr && !known_.num_layers) known_.num_layers = whole_value(layers->value);
    for (const char* key :
         {"model.num_nextn_predict_layers", "model.config.num_nextn_predict_layers"}) {
      const auto more = reader_.whole(key);
      if (more && known_.num_layers) reader_.set_by(key, "model.num_mtp_layers", *more);
    }
  }

  // A number, or none for 1.
  int64_t size_of(std::string_view name) {
    const std::string key = std::string(kMesh) + std::string(name);
    const std::string word = reader_.text(key).value_or("none");
    if (word == "none" || word == "None") return 1;
    const auto value = whole_value(word);
    if (value && *value >= 1 && *value <= 1 << 20) return *value;
    reader_.error(key, fmt::format("{} must be none or a whole number of at least 1, not {}", key,
                                   text::quoted_for_message(word)));
    return 1;
  }

  void degrees() {
    tensor_ = size_of("tp_size");
    context_ = size_of("cp_size");
    pipeline_ = size_of("pp_size");
    replicas_ = size_of("dp_replicate_size");
    reader_.set_by("distributed.tp_size", "parallel.tensor_parallel_degree", tensor_);
    reader_.set_by("distributed.pp_size", "parallel.pipeline_parallel_degree", pipeline_);
    reader_.set_by("distributed.cp_size", "parallel.context_parallel_degree", context_);
    const int64_t experts = size_of("ep_size");
    if (experts > 1)
      reader_.set_by("distributed.ep_size", "parallel.expert_parallel_degree", experts);
    if (tensor_ > 1) {
      reader_.set_by("distributed.sequence_parallel", "parallel.sequence_parallel",
                     std::string(is_true("distributed.sequence_parallel") ? "true" : "false"));
    }
  }

  void batch() {
    constexpr const char* kSteps = "step_scheduler.max_steps";
    const std::string steps = reader_.text(kSteps).value_or("none");
    if (const auto count = whole_value(steps); count && *count >= 0) {
      reader_.set_by(kSteps, "training.steps", *count);
    } else if (steps != "none" && steps != "None") {
      reader_.error(kSteps, fmt::format("{} must be none or a whole number, not {}", kSteps,
                                        text::quoted_for_message(steps)));
    }
    constexpr const char* kMicro = "distributed.pipeline.pp_microbatch_size";
    constexpr const char* kLocal = "step_scheduler.local_batch_size";
    const int64_t local = reader_.whole(kLocal).value_or(1);
    if (pipeline_ > 1) {
      reader_.set_by(kMicro, "training.micro_batch", reader_.whole(kMicro).value_or(1));
    } else {
      reader_.set_by(kLocal, "training.micro_batch", local);
    }
    for (const char* key :
         {"packed_sequence.packed_sequence_size", "dataset.seq_length", "dataset.seq_len"}) {
      const auto length = reader_.whole(key);
      if (!length || *length == 0) continue;
      reader_.set_by(key, "training.sequence_length", *length);
      return;
    }
    constexpr int64_t kAssumed = 4096;
    const ImportedKey* most = out_.find("model.max_positions");
    const auto longest = most != nullptr ? whole_value(most->value) : known_.max_positions;
    const int64_t length = std::min(longest.value_or(kAssumed), kAssumed);
    reader_.set_by("dataset.seq_length", "training.sequence_length", length);
    reader_.warn_of_file(
        fmt::format("the file gives no length of a sample: the plan has {}; give another by --with "
                    "FILE, whose line is training: {{sequence_length: N}}",
                    length));
  }

  void precision() {
    const std::string key =
        reader_.has("model.config.torch_dtype") ? "model.config.torch_dtype" : "model.torch_dtype";
    const std::string type = last_part(reader_.text(key).value_or("bf16"));
    const bool fp32 = type == "float32" || type == "fp32";
    if (!fp32)
      set_half_states(reader_, key, type == "float16" || type == "fp16",
                      reader_.text("optimizer._target_").value_or(""));
    const bool fp8 = is_true("fp8.enabled");
    // Each recipe of torchao scales by the tensor's own elements.
    if (fp8) reader_.set_by("fp8.enabled", "training.fp8_recipe", std::string("current"));
    const bool fp16 = type == "float16" || type == "fp16";
    reader_.set_by(fp8 ? "fp8.enabled" : key, "training.precision",
                   std::string(fp8    ? "fp8"
                               : fp32 ? "fp32"
                               : fp16 ? "fp16"
                                      : "bf16"));
    if (!reader_.has("rng.seed") && reader_.has("seed")) {
      reader_.set_by("seed", "training.seed", *reader_.whole("seed"));
    }
  }

  void sharding() {
    // BackendConfig takes Transformer Engine where it is installed, as in NVIDIA's containers.
    const std::string linear = reader_.text("model.backend.linear").value_or("te");
    if (is_true("model.force_hf") || linear != "te") {
      set_trainer(reader_, Trainer::kFsdp, "Automodel with torch's layers");
    } else {
      reader_.set("parallel.framework", "automodel", "Automodel");
    }
    const std::string key =
        reader_.has("distributed.strategy") ? "distributed.strategy" : "distributed._target_";
    const std::string word = last_part(reader_.text(key).value_or("fsdp2"));
    const bool plain = word == "ddp" || word == "DDPManager";
    const bool known = plain || word == "fsdp2" || word == "megatron_fsdp" ||
                       word == "FSDP2Manager" || word == "MegatronFSDPManager";
    if (!known) {
      reader_.error(key, fmt::format("{} {} is not supported; supported are fsdp2, megatron_fsdp "
                                     "and ddp",
                                     key, text::quoted_for_message(word)));
      return;
    }
    static constexpr std::string_view kStages[] = {"none", "optimizer_state", "gradients",
                                                   "parameters"};
    const int64_t stage = plain ? 0 : reader_.whole("distributed.zero_dp_strategy").value_or(3);
    const std::string_view kind = kStages[stage];
    const std::string data_key = "distributed.dp_size";
    const std::string data_word = reader_.text(data_key).value_or("none");
    if (replicas_ == 1 && (data_word == "none" || data_word == "None")) {
      set_shard_over_all(reader_, kind, known_, context_, tensor_, pipeline_, key);
      return;
    }
    const auto world = known_.world();
    const int64_t others = product_of({tensor_, pipeline_, context_});
    int64_t data = size_of("dp_size");
    if (data_word == "none" || data_word == "None") {
      if (!world) {
        reader_.error("distributed.dp_replicate_size",
                      "distributed.dp_replicate_size needs the number of ranks: give --hosts and "
                      "--processes-per-host");
        return;
      }
      data = *world / others;
    }
    if (data % replicas_ != 0 || (world && product_of({data, others}) != *world)) {
      reader_.error(
          data_key,
          fmt::format("dp_size {} with dp_replicate_size {} and tensor x pipeline x "
                      "context size {} do not form {} ranks",
                      data, replicas_, others, world ? fmt::format("the {}", *world) : "whole"));
      return;
    }
    const int64_t shard = data / replicas_;
    reader_.set("parallel.sharding", std::string(shard > 1 ? kind : "none"), key);
    if (shard > 1 && !plain)
      reader_.set_by(data_key, "parallel.sharded_data_parallel_degree", shard);
  }

  void schedule() {
    if (pipeline_ == 1) return;
    constexpr const char* kKey = "distributed.pipeline.pp_schedule";
    constexpr const char* kLayers = "distributed.pipeline.layers_per_stage";
    const std::string word = reader_.text(kKey).value_or("1f1b");
    const std::string_view kind = pipeline_of_word(reader_, kKey, word);
    if (kind.empty()) return;
    reader_.set_by(kKey, "parallel.pipeline", std::string(kind));
    if (kind == "zb_v") reader_.set_by(kKey, "parallel.virtual_pipeline_degree", 2);
    if (kind != "virtual") return;
    const auto each = reader_.whole(kLayers);
    if (each && known_.num_layers) {
      const int64_t chunks = std::max<int64_t>((*known_.num_layers + *each - 1) / *each, 1);
      const bool up =
          reader_.text("distributed.pipeline.round_virtual_stages_to_pp_multiple") == "up";
      const int64_t degree = std::max<int64_t>((chunks + (up ? pipeline_ - 1 : 0)) / pipeline_, 2);
      reader_.set_by(kLayers, "parallel.virtual_pipeline_degree", degree);
      deal(kLayers, *known_.num_layers, pipeline_ * degree);
    } else {
      reader_.set_by(kKey, "parallel.virtual_pipeline_degree", 2);
    }
  }

  // The first chunks have the layers that are left over (components/distributed/pipelining/
  // functional.py).
  void deal(const char* key, int64_t layers, int64_t chunks) {
    if (layers % chunks == 0 || layers < chunks) return;
    std::vector<int64_t> partition(static_cast<size_t>(chunks), layers / chunks);
    for (int64_t i = 0; i < layers % chunks; ++i) ++partition[static_cast<size_t>(i)];
    reader_.set_by(key, "parallel.partition", fmt::format("[{}]", fmt::join(partition, ", ")));
  }

  void memory() {
    const std::string key = reader_.has("activation_checkpointing")
                                ? "activation_checkpointing"
                                : "distributed.activation_checkpointing";
    reader_.set_by(key, "parallel.recompute", std::string(is_true(key) ? "full" : "none"));
    for (const char* name : {"model.attn_implementation", "model.backend.attn"}) {
      const auto word = reader_.text(name);
      if (!word) continue;
      set_attention_word(reader_, name, *word);
      break;
    }
    const std::string loss = last_part(reader_.text("loss_fn._target_").value_or(""));
    const bool fused = loss.find("Fused") != loss.npos || loss.find("TE") != loss.npos ||
                       loss.find("Liger") != loss.npos;
    if (fused) reader_.set_by("loss_fn._target_", "training.fused_loss", std::string("true"));
    if (!fused && is_true("model.use_liger_kernel")) {
      reader_.set_by("model.use_liger_kernel", "training.fused_loss", std::string("true"));
    }
  }

  void optimizer() {
    if (const auto word = reader_.text("optimizer._target_")) {
      set_optimizer_word(reader_, "optimizer._target_", *word);
    }
    if (const auto word = reader_.text("lr_scheduler.lr_decay_style")) {
      set_schedule_word(reader_, "lr_scheduler.lr_decay_style", *word);
    }
    const auto least = reader_.text("lr_scheduler.min_lr");
    const ImportedKey* style = out_.find("training.optimizer.schedule");
    if (least && (style == nullptr || style->value != "constant")) {
      reader_.set_by("lr_scheduler.min_lr", "training.optimizer.min_learning_rate", *least);
    }
    const text::YamlNode* betas = reader_.node("optimizer.betas");
    if (betas == nullptr) return;
    if (betas->items.size() != 2) {
      reader_.error("optimizer.betas", "optimizer.betas: expected two numbers");
      return;
    }
    reader_.set_by("optimizer.betas", "training.optimizer.beta1", betas->items[0].text);
    reader_.set_by("optimizer.betas", "training.optimizer.beta2", betas->items[1].text);
  }

  ForeignReader& reader_;
  ImportContext known_;
  Imported& out_;
  int64_t tensor_ = 1;
  int64_t context_ = 1;
  int64_t pipeline_ = 1;
  int64_t replicas_ = 1;
};

}  // namespace

void read_automodel(const text::YamlNode& root, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out) {
  ForeignReader reader(automodel_keys(), diagnostics, out);
  reader.read(root, "", UnknownKeys::kWarning);
  AutomodelFile(reader, context, out).read();
}

}  // namespace smp::importers
