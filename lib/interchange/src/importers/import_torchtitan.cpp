#include <fmt/format.h>

#include <algorithm>

#include "importers/foreign_keys.h"
#include "importers/import_torchtitan_pipeline.h"
#include "importers/import_torchtitan_training.h"
#include "importers/named_model.h"
#include "importers/smp_dictionary.h"
#include "importers/toml_tree.h"
#include "importers/trainer_words.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/text/json_tree.h"
#include "smp/plan/text/lower_case.h"

// A torchtitan configuration (its TOML, or the JSON of scripts/dump-torchtitan-config) as keys of a
// job file. Sources: torchtitan/config, distributed/pipeline_parallel.py, distributed/fsdp.py.
namespace smp::importers {
namespace {

constexpr std::string_view kParallel = "parallelism.";
constexpr int64_t kSequence = 2048;       // default of seq_len and max_context_length
constexpr int64_t kTokensAtOnce = 16384;  // of num_tokens_per_microbatch_per_dp_rank
constexpr int64_t kOldBatch = 8;          // of local_batch_size

std::string key_of_parallelism(std::string_view name) {
  return std::string(kParallel) + std::string(name);
}

class TorchTitanFile {
 public:
  TorchTitanFile(ForeignReader& reader, const ImportContext& context, Imported& out)
      : reader_(reader), known_(context), out_(out) {}

  void read() {
    reader_.copy_all();
    set_trainer(reader_, Trainer::kTorchTitan, "torchtitan");
    model();
    precision();
    degrees();
    sharding();
    read_torchtitan_pipeline(reader_, known_.num_layers, pipeline_);
    batch();
    recompute();
    read_torchtitan_optimizer(reader_);
    read_torchtitan_learning_rate(reader_);
    read_torchtitan_compilation(reader_);
  }

 private:
  std::optional<int64_t> whole(std::string_view key) const { return reader_.whole(key); }
  bool is_true(std::string_view key) const { return reader_.boolean(key).value_or(false); }

  void model() {
    const std::string name = reader_.text("model.name").value_or("");
    const std::string flavor = reader_.text("model.flavor").value_or("");
    const std::string folder = reader_.text("model.hf_assets_path").value_or("");
    if (name.empty() && flavor.empty()) return;
    const std::string whole_name = fmt::format("{}-{}", name, flavor);
    // A folder may be there, or be called as the model is.
    const bool by_folder =
        jobfile::find_model(whole_name) == nullptr && is_known_model(folder, out_);
    const std::string key = by_folder ? "model.hf_assets_path" : "model.flavor";
    add_named_model(key, reader_.place(key), by_folder ? folder : whole_name, known_, out_);
    const ImportedKey* layers = out_.find("model.num_layers");
    if (layers != nullptr && !known_.num_layers) known_.num_layers = whole_value(layers->value);
    experts_ = known_.num_layers.has_value() && out_.find("model.num_experts") != nullptr;
  }

  void precision() {
    if (reader_.text("training.dtype").value_or("float32") == "bfloat16") {
      set_half_states(reader_, "training.dtype", false, "");
    }
    const std::string word = reader_.text("training.mixed_precision_param").value_or("bfloat16");
    std::string precision = word == "bfloat16" ? "bf16" : "fp32";
    std::string key = "training.mixed_precision_param";
    if (const text::YamlNode* list = reader_.node("model.converters")) {
      for (const text::YamlNode& item : list->items) {
        const std::string name = text::lower_case(item.text);
        const auto says = [&](std::string_view part) { return name.find(part) != name.npos; };
        if (says("nvfp4")) {
          precision = "nvfp4";
          key = "model.converters";
        } else if (says("float8") || says("mx")) {
          precision = "fp8";
          reader_.set_by("model.converters", "training.fp8_recipe",
                         std::string(says("mx") ? "mxfp8" : "current"));
          key = "model.converters";
        } else {
          reader_.error_at(item.place, fmt::format("the converter {} is not supported",
                                                   text::quoted_for_message(item.text)));
        }
      }
    }
    reader_.set_by(key, "training.precision", precision);
  }

  void degree(std::string_view name, std::string_view path, int64_t& value) {
    const std::string key = key_of_parallelism(name);
    value = whole(key).value_or(1);
    reader_.set_by(key, path, value);
  }

  void degrees() {
    degree("tensor_parallel_degree", "parallel.tensor_parallel_degree", tensor_);
    degree("pipeline_parallel_degree", "parallel.pipeline_parallel_degree", pipeline_);
    degree("context_parallel_degree", "parallel.context_parallel_degree", context_);
    const std::string sequence = key_of_parallelism("enable_sequence_parallel");
    if (tensor_ > 1) {
      reader_.set_by(sequence, "parallel.sequence_parallel",
                     std::string(reader_.boolean(sequence).value_or(true) ? "true" : "false"));
    }
    for (const auto& [name, path] :
         {std::pair{"expert_parallel_degree", "parallel.expert_parallel_degree"},
          std::pair{"expert_tensor_parallel_degree", "parallel.expert_tensor_degree"}}) {
      const std::string key = key_of_parallelism(name);
      const auto value = whole(key);
      if (value && (*value > 1 || experts_)) reader_.set_by(key, path, *value);
    }
    for (const std::string_view section : {"parallelism", "compile"}) {
      const std::string key = fmt::format("{}.enable_async_tensor_parallel", section);
      if (is_true(key)) {
        reader_.warn(key, fmt::format("{}: the plan does not overlap tensor-parallel collectives "
                                      "with matmuls",
                                      key));
      }
    }
    reader_.set("parallel.placement_strategy", "PDT", "torchtitan's order of ranks");
  }

  void sharding() {
    const std::string shard = key_of_parallelism("data_parallel_shard_degree");
    const std::string replicate = key_of_parallelism("data_parallel_replicate_degree");
    const std::string reshard = key_of_parallelism("fsdp_reshard_after_forward");
    int64_t degree = whole(shard).value_or(-1);
    const int64_t replicas = whole(replicate).value_or(1);
    if (degree == 0) {
      reader_.error(shard, fmt::format("{} is 0: expected -1 or a number from 1", shard));
      return;
    }
    const std::string policy = reader_.text(reshard).value_or("default");
    const bool keeps = policy == "never" || (policy == "default" && pipeline_ > 1);
    const std::string kind = keeps ? "gradients" : "parameters";
    const bool offloads = is_true("training.enable_cpu_offload");
    for (const char* path : {"parallel.offload_parameters", "parallel.offload_optimizer"}) {
      if (offloads) reader_.set_by("training.enable_cpu_offload", path, std::string("true"));
    }
    if (degree == -1 && replicas == 1) {
      set_shard_over_all(reader_, kind, known_, context_, tensor_, pipeline_,
                         reader_.has(reshard) ? reshard : "torchtitan's FSDP", {}, offloads);
      return;
    }
    const int64_t others = product_of({replicas, tensor_, pipeline_, context_});
    const auto world = known_.world();
    if (degree == -1 && !world) {
      reader_.error(replicate, fmt::format("{} {} with {} -1 needs the number of ranks: give "
                                           "--hosts and --processes-per-host",
                                           replicate, replicas, shard));
      return;
    }
    if (degree == -1) degree = *world / std::max<int64_t>(others, 1);
    if (world && product_of({degree, others}) != *world) {
      reader_.error(shard,
                    fmt::format("replicate x shard x tensor x pipeline x context degree = {} x {} "
                                "x {} x {} x {} = {}, but there are {} ranks",
                                replicas, degree, tensor_, pipeline_, context_,
                                product_of({degree, others}), *world));
      return;
    }
    reader_.set_by(reader_.has(reshard) ? reshard : shard, "parallel.sharding",
                   degree > 1 ? kind : std::string("none"));
    if (degree > 1) reader_.set_by(shard, "parallel.sharded_data_parallel_degree", degree);
  }

  void batch() {
    const bool today = reader_.has("training.num_tokens_per_microbatch_per_dp_rank") ||
                       reader_.has("training.num_tokens_per_train_step") ||
                       reader_.has("training.max_context_length");
    const std::string length = today ? "training.max_context_length" : "training.seq_len";
    const int64_t sequence = whole(length).value_or(kSequence);
    reader_.set_by(length, "training.sequence_length", sequence);
    today ? tokens(sequence) : samples();
  }

  // trainer.py: a step accumulates over passes of local_batch_size.
  void samples() {
    const std::string key =
        reader_.has("training.batch_size") ? "training.batch_size" : "training.local_batch_size";
    const int64_t local = whole(key).value_or(kOldBatch);
    const std::string micro = key_of_parallelism("pipeline_parallel_microbatch_size");
    const int64_t size = pipeline_ > 1 ? whole(micro).value_or(1) : local;
    if (local % size != 0) {
      reader_.error(micro, fmt::format("{} ({}) does not divide {} ({})", micro, size, key, local));
      return;
    }
    reader_.set_by(pipeline_ > 1 ? micro : key, "training.micro_batch", size);
    finish_batch("training.global_batch_size", whole("training.global_batch_size").value_or(-1),
                 key, local / size);
  }

  void tokens(int64_t sequence) {
    const std::string key = "training.num_tokens_per_microbatch_per_dp_rank";
    const int64_t at_once = whole(key).value_or(kTokensAtOnce);
    if (at_once % sequence != 0) {
      reader_.error(key, fmt::format("{} ({}) is no multiple of training.max_context_length ({})",
                                     key, at_once, sequence));
      return;
    }
    reader_.set_by(key, "training.micro_batch", at_once / sequence);
    const std::string step = "training.num_tokens_per_train_step";
    int64_t all = whole(step).value_or(-1);
    if (all > 0 && all % sequence != 0) {
      reader_.error(step, fmt::format("{} ({}) is no multiple of training.max_context_length ({})",
                                      step, all, sequence));
      return;
    }
    if (all > 0) all /= sequence;
    const std::string count = key_of_parallelism("num_pp_microbatches");
    finish_batch(step, all, count, pipeline_ > 1 ? whole(count).value_or(1) : 1);
  }

  // `microbatches` of one pass; a step has passes until `global` samples are done.
  void finish_batch(const std::string& key, int64_t global, const std::string& count,
                    int64_t microbatches) {
    if (global == 0) {
      reader_.error(key, fmt::format("{} is 0: expected -1 or a number from 1", key));
    } else if (global < 0) {
      reader_.set_by(count, "training.microbatches", microbatches);
    } else {
      reader_.set_by(key, "training.global_batch", global);
      if (pipeline_ > 1) {
        reader_.note(
            fmt::format("torchtitan runs the pipeline once for every {} microbatches; the "
                        "plan runs it once for all of a step",
                        microbatches));
      }
    }
  }

  void recompute() {
    constexpr const char* kMode = "activation_checkpoint.mode";
    constexpr const char* kOption = "activation_checkpoint.selective_ac_option";
    const std::string mode = reader_.text(kMode).value_or("selective");
    const std::string option = reader_.text(kOption).value_or("2");
    const auto every = whole_value(option);
    if (mode == "none" || mode == "full") {
      reader_.set_by(kMode, "parallel.recompute", mode);
    } else if (mode != "selective") {
      reader_.error(kMode, fmt::format("{} {} is not supported; supported are none, selective and "
                                       "full",
                                       kMode, text::quoted_for_message(mode)));
    } else if (option == "op") {
      reader_.set_by(kOption, "parallel.recompute", std::string("selective"));
    } else if (!every || *every < 1) {
      reader_.error(kOption, fmt::format("{} {}: expected op or a number of layers", kOption,
                                         text::quoted_for_message(option)));
    } else {
      reader_.set_by(kOption, "parallel.recompute", std::string("full"));
      const auto all = known_.num_layers;
      if (*every > 1 && all) {
        // Of each stage.
        const int64_t layers = std::max<int64_t>(*all / pipeline_ / *every, 1);
        reader_.set_by(kOption, "parallel.recompute_layers", layers);
      } else if (*every > 1) {
        reader_.warn(kOption, fmt::format("every {} layers one is recomputed: the plan recomputes "
                                          "all, because the number of layers is not known",
                                          *every));
      }
    }
  }

  ForeignReader& reader_;
  ImportContext known_;
  Imported& out_;
  bool experts_ = false;
  int64_t tensor_ = 1;
  int64_t pipeline_ = 1;
  int64_t context_ = 1;
};

}  // namespace

void read_torchtitan(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                     const ImportContext& context, Imported& out) {
  const size_t first = source.text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && source.text[first] == '{';
  const text::YamlTree tree = json ? text::parse_json(source.text, number, diagnostics)
                                   : parse_toml(source.text, number, diagnostics);
  if (!tree.complete) return;
  ForeignReader reader(torchtitan_keys(), diagnostics, out);
  // torchtitan itself refuses keys that it does not know.
  reader.read(tree.root, "", UnknownKeys::kError);
  TorchTitanFile(reader, context, out).read();
}

}  // namespace smp::importers
