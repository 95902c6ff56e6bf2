#include <fmt/format.h>

#include <cmath>

#include "importers/adapters.h"
#include "importers/foreign_keys.h"
#include "importers/fsdp_words.h"
#include "importers/named_model.h"
#include "importers/trainer_words.h"

// A LLaMA-Factory configuration (YAML) as keys of a job file. Defaults: hparams/data_args.py,
// hparams/finetuning_args.py and model/model_utils/checkpointing.py of LLaMA-Factory; transformers'
// TrainingArguments.
namespace smp::importers {
namespace {

class LlamaFactoryFile {
 public:
  LlamaFactoryFile(ForeignReader& reader, const ImportContext& context, Imported& out)
      : reader_(reader), known_(context), out_(out) {}

  void read() {
    reader_.copy_all();
    method();
    if (const auto name = reader_.text("model_name_or_path")) {
      add_named_model("model_name_or_path", reader_.place("model_name_or_path"), *name, known_,
                      out_);
    }
    batch();
    precision();
    sharding();
    memory();
    optimizer();
  }

 private:
  bool is_true(std::string_view key) const { return reader_.boolean(key).value_or(false); }

  void method() {
    const std::string stage = reader_.text("stage").value_or("sft");
    if (stage != "pt" && stage != "sft") {
      reader_.error("stage", fmt::format("stage {} is not supported, because it trains with a "
                                         "second model or generates text; supported are pt and sft",
                                         stage));
    }
    const std::string type = reader_.text("finetuning_type").value_or("lora");
    if (is_low_rank(type)) {
      adapters();
    } else if (type != "full") {
      warn_adapter(type, reader_.place("finetuning_type"), out_);
    }
    const auto bits = reader_.whole("quantization_bit");
    if (bits && (!is_low_rank(type) || (*bits != 4 && *bits != 8))) {
      warn_quantized(reader_, "quantization_bit");
    }
    if (is_true("use_unsloth")) {
      reader_.warn("use_unsloth", "use_unsloth: the plan has PyTorch's kernels and memory");
    }
  }

  void adapters() {
    Adapters lora;
    lora.place = reader_.place("finetuning_type");
    const int64_t rank = reader_.whole("lora_rank").value_or(8);
    lora.rank = adapter_value(reader_, "lora_rank", "8");
    lora.alpha = adapter_value(reader_, "lora_alpha", fmt::format("{}", 2 * rank));
    lora.dropout = adapter_value(reader_, "lora_dropout", "");
    const int64_t bits = reader_.whole("quantization_bit").value_or(16);
    if (bits == 4) {
      const bool twice = reader_.boolean("double_quantization").value_or(true);
      lora.quantized = {twice ? "nf4_double" : "nf4", "quantization_bit = 4"};
    } else if (bits == 8) {
      lora.quantized = {"int8", "quantization_bit = 8"};
    }
    const text::YamlNode* modules = reader_.node("lora_target");
    if (modules != nullptr) lora.modules = words_of(*modules);
    lora.modules_origin = modules != nullptr ? "lora_target" : "no lora_target";
    set_adapters_of(reader_, lora, "lora_target", out_);
    warn_beside_adapters(reader_, "additional_target", "use_dora");
  }

  void batch() {
    constexpr const char* kLength = "cutoff_len";
    constexpr const char* kBatch = "per_device_train_batch_size";
    constexpr const char* kSteps = "gradient_accumulation_steps";
    reader_.set_by(kLength, "training.sequence_length",
                   fmt::format("{}", reader_.whole(kLength).value_or(2048)));
    reader_.set_by(kBatch, "training.micro_batch",
                   fmt::format("{}", reader_.whole(kBatch).value_or(8)));
    reader_.set_by(kSteps, "training.microbatches",
                   fmt::format("{}", reader_.whole(kSteps).value_or(1)));
    if (const auto steps = reader_.whole("max_steps"); steps && *steps > 0) {
      reader_.set_by("max_steps", "training.steps", fmt::format("{}", *steps));
    }
  }

  void precision() {
    if (is_true("bf16") && is_true("fp16")) {
      reader_.error("fp16", "bf16 and fp16 cannot both be true");
      return;
    }
    constexpr const char* kPure = "pure_bf16";
    if (is_true(kPure)) {
      reader_.set_by(kPure, "training.precision", "bf16");
      set_half_states(reader_, kPure, false, reader_.text("optim").value_or(""));
      return;
    }
    const std::string key = is_true("fp8") ? "fp8" : is_true("fp16") ? "fp16" : "bf16";
    reader_.set_by(key, "training.precision", is_true(key) ? key : "fp32");
  }

  void sharding() {
    reader_.set("parallel.tensor_parallel_degree", "1", "no tensor parallelism");
    reader_.set("parallel.pipeline_parallel_degree", "1", "no pipeline");
    if (set_deepspeed_or_fsdp(reader_, known_)) return;
    out_.assume("parallel.framework");
    FsdpSharding fsdp;
    read_trainers_fsdp(reader_, fsdp);
    set_fsdp_offload(reader_, fsdp);
    set_fsdp_sharding(reader_, fsdp, known_, 1, 1, 1);
  }

  void memory() {
    const bool off = is_true("disable_gradient_checkpointing") ||
                     reader_.boolean("gradient_checkpointing") == false;
    const std::string key = reader_.boolean("gradient_checkpointing") == false
                                ? "gradient_checkpointing"
                                : "disable_gradient_checkpointing";
    reader_.set_by(key, "parallel.recompute", off ? "none" : "full");
    if (is_true("use_unsloth_gc") && !off) {
      reader_.set_by("use_unsloth_gc", "parallel.offload_activations", "true");
    }
    if (const auto word = reader_.text("flash_attn")) {
      set_attention_word(reader_, "flash_attn", *word);
    }
    if (is_true("enable_liger_kernel")) {
      reader_.set_by("enable_liger_kernel", "training.fused_loss", "true");
    }
  }

  void optimizer() {
    if (const auto word = reader_.text("optim")) set_optimizer_word(reader_, "optim", *word);
    if (const auto word = reader_.text("lr_scheduler_type")) {
      set_schedule_word(reader_, "lr_scheduler_type", *word);
    } else {
      reader_.set_by("lr_scheduler_type", "training.optimizer.schedule", "linear");
    }
    const auto steps = reader_.whole("warmup_steps");
    const auto ratio = reader_.number("warmup_ratio");
    const auto all = reader_.whole("max_steps");
    if (steps && *steps > 0) {
      reader_.set_by("warmup_steps", "training.optimizer.warmup_steps", fmt::format("{}", *steps));
    } else if (ratio && all && *all > 0) {
      reader_.set_by("warmup_ratio", "training.optimizer.warmup_steps",
                     fmt::format("{}", std::llround(*ratio * static_cast<double>(*all))));
    }
  }

  ForeignReader& reader_;
  const ImportContext& known_;
  Imported& out_;
};

}  // namespace

void read_llama_factory(const text::YamlNode& root, text::Diagnostics& diagnostics,
                        const ImportContext& context, Imported& out) {
  ForeignReader reader(llama_factory_keys(), diagnostics, out);
  reader.read(root, "", UnknownKeys::kWarning);
  LlamaFactoryFile(reader, context, out).read();
}

}  // namespace smp::importers
