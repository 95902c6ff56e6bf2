#include <fmt/format.h>

#include "importers/auto_values.h"
#include "importers/foreign_keys.h"
#include "importers/fsdp_words.h"
#include "importers/smp_dictionary.h"

// An accelerate configuration (YAML) as keys of a job file.
namespace smp::importers {
namespace {

constexpr std::string_view kFsdp = "fsdp_config.fsdp_";
constexpr std::string_view kSizes = "parallelism_config.parallelism_config_";
constexpr std::string_view kMegatron = "megatron_lm_config.megatron_lm_";

std::string joined(std::string_view head, std::string_view tail) {
  return std::string(head) + std::string(tail);
}

class AccelerateFile {
 public:
  AccelerateFile(ForeignReader& reader, const ImportContext& context)
      : reader_(reader), known_(context) {}

  void read() {
    reader_.copy_all();
    type_ = reader_.text("distributed_type").value_or("NO");
    if (reader_.text("compute_environment") == "AMAZON_SAGEMAKER") {
      reader_.error("compute_environment",
                    "AMAZON_SAGEMAKER gives an instance, but no layout: import the job's "
                    "distribution dictionary (--from smp-v1 or smp-v2)");
    }
    cluster();
    precision();
    degrees();
    if (type_ == "FSDP") {
      fsdp();
    } else if (type_ == "DEEPSPEED") {
      deepspeed();
    } else if (type_ == "MEGATRON_LM") {
      megatron();
    } else if (type_ == "MULTI_GPU" || type_ == "MULTI_CPU" || type_ == "NO") {
      reader_.set("parallel.sharding", "none", "distributed_type = " + type_);
    } else {
      reader_.error("distributed_type",
                    fmt::format("distributed_type {} is not supported; supported are FSDP, "
                                "DEEPSPEED, MEGATRON_LM, MULTI_GPU, MULTI_CPU and NO",
                                text::quoted_for_message(type_)));
    }
  }

 private:
  void copy(const std::string& key, std::string_view path, std::optional<int64_t> value) {
    if (value) reader_.set_from(key, std::string(path), fmt::format("{}", *value));
  }

  void cluster() {
    const auto machines = reader_.whole("num_machines");
    const auto processes = reader_.whole("num_processes");
    const int64_t hosts = machines.value_or(1);
    copy("num_machines", "cluster.hosts", machines);
    if (reader_.boolean("use_cpu").value_or(false)) {
      reader_.set_from("use_cpu", "cluster.device", "cpu");
    }
    if (!processes) return;
    if (*processes % hosts != 0) {
      reader_.error("num_processes", fmt::format("num_processes ({}), the number on all machines, "
                                                 "is not divisible by num_machines ({})",
                                                 *processes, hosts));
      return;
    }
    known_.hosts = hosts;
    known_.processes_per_host = *processes / hosts;
    copy("num_processes", "cluster.processes_per_host", known_.processes_per_host);
  }

  void precision() {
    const auto word = reader_.text("mixed_precision");
    if (!word && reader_.boolean("fp16").value_or(false)) {
      reader_.set_from("fp16", "training.precision", "fp16");
    }
    if (word)
      reader_.set_from("mixed_precision", "training.precision", *word == "no" ? "fp32" : *word);
  }

  void degrees() {
    const bool megatron = type_ == "MEGATRON_LM";
    const std::string tensor =
        megatron ? joined(kMegatron, "tp_degree") : joined(kSizes, "tp_size");
    const std::string context =
        megatron ? joined(kMegatron, "context_parallel_size") : joined(kSizes, "cp_size");
    const std::string pipeline = joined(kMegatron, "pp_degree");
    tensor_ = reader_.whole(tensor).value_or(1);
    context_ = reader_.whole(context).value_or(1);
    pipeline_ = megatron ? reader_.whole(pipeline).value_or(1) : 1;
    reader_.set("parallel.tensor_parallel_degree", fmt::format("{}", tensor_),
                reader_.has(tensor) ? tensor : "no tensor parallelism");
    reader_.set("parallel.pipeline_parallel_degree", fmt::format("{}", pipeline_),
                megatron ? pipeline : "no pipeline");
    if (context_ > 1) copy(context, "parallel.context_parallel_degree", context_);
  }

  void fsdp() {
    reader_.set("parallel.framework", "fsdp2", "distributed_type = FSDP");
    const bool two = reader_.whole(joined(kFsdp, "version")).value_or(1) == 2;
    const std::string strategy = joined(kFsdp, "sharding_strategy");
    const std::string reshard = joined(kFsdp, "reshard_after_forward");
    if (two && reader_.has(strategy)) {
      reader_.error(strategy,
                    "fsdp_sharding_strategy is a key of FSDP version 1; version 2 has "
                    "fsdp_reshard_after_forward: true or false");
    }
    const std::string& key = two ? reshard : strategy;
    FsdpSharding fsdp;
    fsdp.kind = "parameters";
    fsdp.origin = "no " + key;
    read_fsdp_strategy(reader_, key, fsdp);
    const std::string offload = joined(kFsdp, "offload_params");
    if (reader_.boolean(offload).value_or(false)) fsdp.offload_key = offload;
    set_fsdp_offload(reader_, fsdp);
    fsdp_degree(fsdp);
  }

  void fsdp_degree(const FsdpSharding& fsdp) {
    const auto shard = reader_.whole(joined(kSizes, "dp_shard_size"));
    const auto replicate = reader_.whole(joined(kSizes, "dp_replicate_size"));
    if (!shard && !replicate) {
      set_fsdp_sharding(reader_, fsdp, known_, context_, tensor_, pipeline_);
      return;
    }
    check_product(shard.value_or(1), replicate.value_or(1));
    const int64_t degree = shard.value_or(1);
    reader_.set("parallel.sharding", degree > 1 ? fsdp.kind : "none", fsdp.origin);
    reader_.set("parallel.sharded_data_parallel_degree", fmt::format("{}", degree),
                shard ? joined(kSizes, "dp_shard_size") : "no dp_shard_size");
  }

  void check_product(int64_t shard, int64_t replicate) {
    const auto world = known_.world();
    const int64_t product = product_of({shard, replicate, tensor_, context_});
    if (!world || product == *world) return;
    reader_.error(joined(kSizes, "dp_shard_size"),
                  fmt::format("dp_replicate x dp_shard x tp x cp = {} x {} x {} x {} = {}, but "
                              "num_processes is {}",
                              replicate, shard, tensor_, context_, product, *world));
  }

  void deepspeed() {
    reader_.set("parallel.framework", "deepspeed", "distributed_type = DEEPSPEED");
    if (const auto file = reader_.text("deepspeed_config.deepspeed_config_file")) {
      reader_.warn("deepspeed_config.deepspeed_config_file",
                   fmt::format("the layout is in {}: import it in the same call", *file));
      return;
    }
    static constexpr std::string_view kShardings[] = {"none", "optimizer_state", "gradients",
                                                      "parameters"};
    const int64_t stage = reader_.whole("deepspeed_config.zero_stage").value_or(2);
    const bool offloads = reader_.text("deepspeed_config.offload_param_device") == "cpu";
    if (offloads && stage != 3) {
      reader_.error("deepspeed_config.offload_param_device",
                    fmt::format("parameter offload requires ZeRO stage 3, not stage {}", stage));
    }
    set_shard_over_all(reader_, kShardings[stage], known_, 1, 1, 1,
                       fmt::format("deepspeed_config.zero_stage = {}", stage), {}, offloads);
    for (const auto& [key, path] :
         {std::pair{"deepspeed_config.offload_optimizer_device", "parallel.offload_optimizer"},
          std::pair{"deepspeed_config.offload_param_device", "parallel.offload_parameters"}}) {
      const auto device = reader_.text(key);
      if (device == "cpu") reader_.set_from(key, path, "true");
      if (device == "nvme") {
        reader_.error(key, fmt::format("{}: nvme is not supported; use cpu", key));
      }
    }
  }

  void megatron() {
    reader_.set("parallel.framework", "megatron-core", "distributed_type = MEGATRON_LM");
    const std::string optimizer = joined(kMegatron, "use_distributed_optimizer");
    const bool shards = reader_.boolean(optimizer).value_or(false);
    set_shard_over_all(reader_, shards ? "optimizer_state" : "none", known_, context_, tensor_,
                       pipeline_, shards ? optimizer : "no distributed optimizer");
    const std::string recompute = joined(kMegatron, "recompute_activations");
    if (reader_.boolean(recompute).value_or(false) &&
        !reader_.has(joined(kMegatron, "recompute_granularity"))) {
      reader_.set_from(recompute, "parallel.recompute", "selective");
    }
  }

  ForeignReader& reader_;
  ImportContext known_;
  std::string type_;
  int64_t tensor_ = 1;
  int64_t context_ = 1;
  int64_t pipeline_ = 1;
};

// accelerate puts "fsdp_" and "megatron_lm_" before keys of their maps that have it not
// (commands/launch.py), and turns dynamo_backend and fp16 of older files into today's keys
// (commands/config/config_args.py).
text::YamlNode of_today(text::YamlNode root) {
  for (text::YamlEntry& entry : root.entries) {
    const std::string_view word = entry.key == "fsdp_config"          ? "fsdp"
                                  : entry.key == "megatron_lm_config" ? "megatron_lm"
                                                                      : "";
    if (word.empty()) continue;
    for (text::YamlEntry& inner : entry.value.entries) {
      if (inner.key.find(word) == std::string::npos)
        inner.key = fmt::format("{}_{}", word, inner.key);
    }
  }
  return root;
}

// accelerate reads each of these maps with one distributed_type (commands/launch.py), and passes
// over those of others: what they say is not what would run.
void refuse_maps_of_others(const text::YamlNode& root, const std::string& type,
                           text::Diagnostics& diagnostics) {
  for (const text::YamlEntry& entry : root.entries) {
    const std::string_view needed = entry.key == "fsdp_config"          ? "FSDP"
                                    : entry.key == "deepspeed_config"   ? "DEEPSPEED"
                                    : entry.key == "megatron_lm_config" ? "MEGATRON_LM"
                                                                        : "";
    if (needed.empty() || needed == type || entry.value.entries.empty()) continue;
    diagnostics.error(entry.place, fmt::format("accelerate reads {} only with distributed_type {}, "
                                               "but distributed_type is {}: remove one",
                                               entry.key, needed, text::quoted_for_message(type)));
  }
}

}  // namespace

void read_accelerate(const text::YamlNode& root, text::Diagnostics& diagnostics,
                     const ImportContext& context, Imported& out) {
  ForeignReader reader(accelerate_keys(), diagnostics, out);
  // accelerate itself refuses keys that it does not know.
  reader.read(of_today(root), "", UnknownKeys::kError, true);
  refuse_maps_of_others(root, reader.text("distributed_type").value_or("NO"), diagnostics);
  AccelerateFile(reader, context).read();
  say_autos(reader, out);
}

}  // namespace smp::importers
