#include <fmt/format.h>

#include "importers/foreign_keys.h"
#include "importers/smp_dictionary.h"

// SMP v1 (smdistributed.modelparallel): the keys of its configuration dictionary.
// Source: sagemaker-python-sdk, doc/api/training/smd_model_parallel_general.rst, and
// src/sagemaker/fw_utils.py, validate_mp_config (which lets unknown keys pass).
namespace smp::importers {

const std::vector<ForeignKey>& smp_v1_keys() {
  static const std::vector<ForeignKey> kKeys = {
      {"pipeline_parallel_degree", Form::kWhole, Use::kRead, "parallel.pipeline_parallel_degree",
       "the same; required", "", "", 1},
      {"partitions", Form::kWhole, Use::kRead, "parallel.pipeline_parallel_degree",
       "old name, before 1.6", "", "", 1},
      {"microbatches", Form::kWhole, Use::kRead, "training.microbatches", "the same; absent = 1",
       "", "", 1},
      {"active_microbatches", Form::kWhole, Use::kRead, "parallel.active_microbatches",
       "the same; absent = pipeline_parallel_degree + 2", "", "", 1},
      {"pipeline", Form::kText, Use::kRead, "parallel.pipeline",
       "the same words; _only_forward does not train, and is refused", "",
       "interleaved simple _only_forward"},
      {"optimize", Form::kText, Use::kRead, "parallel.sequence_parallel",
       "memory (the default) = true: no activation is kept twice in a tensor group; speed = false; "
       "applies if tensor_parallel_degree is above 1",
       "", "memory speed"},
      {"placement_strategy", Form::kText, Use::kCopied, "parallel.placement_strategy",
       "the same words, including permutations of D, P, T", "",
       "cluster spread DPT DTP PDT PTD TDP TPD"},
      {"auto_partition", Form::kBool, Use::kRead, "parallel.partition_method",
       "true (the default) = by memory_weight; false, where the script partitions with "
       "smp.partition, is refused with more than one stage"},
      {"default_partition", Form::kWhole, Use::kRead, "parallel.partition",
       "only with auto_partition: false"},
      {"memory_weight", Form::kNumber, Use::kRead, "parallel.partition_method",
       "weight of parameters against time in SMP's automatic partition (absent = 0.8 with "
       "optimize: memory, 0.2 with speed); at least 0.5 = parameters, below 0.5 = auto",
       "", "", 0, 1},
      {"tensor_parallel_degree", Form::kWhole, Use::kCopied, "parallel.tensor_parallel_degree",
       "the same; above 1 requires ddp: true", "", "", 1},
      {"ddp", Form::kBool, Use::kRead, "",
       "required by data and tensor parallelism; excludes horovod"},
      {"ddp_port", Form::kWhole, Use::kIgnored, "", "rendezvous port", "", "", 1, 65535},
      {"ddp_dist_backend", Form::kText, Use::kRead, "parallel.data_collectives",
       "nccl = nccl; with auto the planner chooses", "", "auto nccl"},
      {"prescaled_batch", Form::kBool, Use::kRead, "parallel.prescaled_batch",
       "the same; with false and tensor parallelism SMP counts samples per rank, a job file per "
       "tensor group, so micro_batch is the script's x tensor_parallel_degree"},
      {"shard_optimizer_state", Form::kBool, Use::kRead, "parallel.shard_optimizer_state",
       "the same"},
      {"offload_activations", Form::kBool, Use::kRead,
       "parallel.offload_activations, parallel.activation_checkpointing",
       "the same; also turns on activation checkpointing; requires microbatches > 1"},
      {"activation_loading_horizon", Form::kWhole, Use::kRead,
       "parallel.activation_loading_horizon",
       "value x layers of a stage, if the model is known, because SMP counts pipeline tasks and "
       "smp layers",
       "", "", 1},
      {"fp16", Form::kBool, Use::kRead, "training.precision", "true = fp16"},
      {"fp16_params", Form::kBool, Use::kRead, "training.precision", "true = fp16"},
      {"bf16", Form::kBool, Use::kRead, "training.precision",
       "true = bf16; SMP supports it only with sharded data parallelism"},
      {"skip_tracing", Form::kBool, Use::kIgnored, "", "smp does not trace"},
      {"delayed_parameter_initialization", Form::kBool, Use::kCopied,
       "parallel.delayed_parameter_initialization", "the same"},
      {"sharded_data_parallel_degree", Form::kWhole, Use::kRead,
       "parallel.sharded_data_parallel_degree", "the same; above 1 it shards parameters", "", "",
       1},
      {"sdp_reduce_bucket_size", Form::kWhole, Use::kRead, "parallel.bucket_bytes",
       "elements x 4, because gradients are fp32", "", "", 1},
      {"sdp_param_persistence_threshold", Form::kWhole, Use::kCopied,
       "parallel.param_persistence_threshold",
       "the same; absent: 0 (SMP: 1000000). SMP also keeps a tensor of exactly this size gathered"},
      {"sdp_max_live_parameters", Form::kWhole, Use::kCopied, "parallel.max_live_parameters",
       "the same; parallel.prefetch_layers limits how many layers, or buckets of small layers "
       "(parallel.shard_bucket_bytes), are gathered ahead within this limit",
       "", "", 1},
      {"sdp_hierarchical_allgather", Form::kBool, Use::kIgnored, "",
       "smp always gathers groups on several hosts in two levels"},
      {"sdp_gradient_clipping", Form::kNumber, Use::kCopied, "training.optimizer.gradient_clipping",
       "the same"},
      {"deterministic_server", Form::kBool, Use::kIgnored, "",
       "smp fixes the schedule before the run, so every rank communicates in the same order"},
      {"contiguous", Form::kBool, Use::kIgnored, "",
       "TensorFlow only; smp's stages are always contiguous"},
      {"horovod", Form::kBool, Use::kRefused, "", "Horovod (TensorFlow) is not supported", "false"},
      {"load_partition", Form::kBool, Use::kRefused, "",
       "a partition saved by SMP cannot be read: write parallel.partition in the job file",
       "false"},
      {"partition_file", Form::kText, Use::kRefused, "",
       "a partition saved by SMP cannot be read: write parallel.partition in the job file"},
      {"static_mode", Form::kBool, Use::kIgnored, "",
       "not documented by SMP; smp always fixes the schedule before the run"},
      {"fast_mode", Form::kBool, Use::kIgnored, "",
       "not documented by SMP; smp's stages always send to each other directly"},
  };
  return kKeys;
}

namespace {

struct Degrees1 {
  int64_t pipeline = 1;
  int64_t tensor = 1;
  int64_t sharded = 1;
};

Degrees1 read_degrees(ForeignReader& reader, const text::YamlNode& parameters) {
  Degrees1 degrees;
  const auto named = reader.whole("pipeline_parallel_degree");
  const auto before = reader.whole("partitions");
  if (named && before && *named != *before) {
    reader.error("partitions", fmt::format("keys disagree: partitions is {}, but "
                                           "pipeline_parallel_degree is {}",
                                           *before, *named));
  } else if (!named && !before && reader.usable("pipeline_parallel_degree") &&
             reader.usable("partitions")) {
    reader.error_at(parameters.place, "pipeline_parallel_degree is missing: SMP v1 requires it");
  }
  degrees.pipeline = named.value_or(before.value_or(1));
  degrees.tensor = reader.whole("tensor_parallel_degree").value_or(1);
  degrees.sharded = reader.whole("sharded_data_parallel_degree").value_or(1);
  if (named || before) {
    reader.set_from(named ? "pipeline_parallel_degree" : "partitions",
                    "parallel.pipeline_parallel_degree", fmt::format("{}", degrees.pipeline));
  }
  return degrees;
}

void check_agreement(ForeignReader& reader, const Degrees1& degrees) {
  const bool ddp = reader.boolean("ddp").value_or(false);
  if (degrees.tensor > 1 && !ddp) {
    reader.error("tensor_parallel_degree",
                 fmt::format("tensor_parallel_degree {} requires ddp: true", degrees.tensor));
  }
  if (degrees.sharded > 1 && !ddp) {
    reader.error(
        "sharded_data_parallel_degree",
        fmt::format("sharded_data_parallel_degree {} requires ddp: true", degrees.sharded));
  }
  for (const std::string_view key : {"ddp_port", "ddp_dist_backend"}) {
    if (reader.has(key) && !ddp) reader.error(key, fmt::format("{} requires ddp: true", key));
  }
  if (reader.boolean("shard_optimizer_state").value_or(false) && degrees.sharded > 1) {
    reader.error(
        "shard_optimizer_state",
        fmt::format(
            "keys disagree: shard_optimizer_state is true, but sharded_data_parallel_degree {} "
            "already shards the optimizer state: remove one key",
            degrees.sharded));
  }
  if (degrees.sharded > 1 && degrees.pipeline > 1) {
    reader.error("sharded_data_parallel_degree",
                 fmt::format("SMP v1 does not combine sharded data parallelism (degree {}) with a "
                             "pipeline (degree {})",
                             degrees.sharded, degrees.pipeline));
  }
  if (reader.text("pipeline") == "_only_forward") {
    reader.error("pipeline", "pipeline _only_forward does not train: write interleaved or simple");
  }
  const bool automatic = reader.boolean("auto_partition").value_or(true);
  const auto fallback = reader.whole("default_partition");
  if (!automatic && !fallback) {
    reader.error("auto_partition", "auto_partition: false requires default_partition");
  } else if (!automatic && *fallback >= degrees.pipeline) {
    reader.error("default_partition",
                 fmt::format("default_partition ({}) must be below pipeline_parallel_degree ({})",
                             *fallback, degrees.pipeline));
  } else if (!automatic && degrees.pipeline > 1) {
    reader.error("auto_partition",
                 "with auto_partition: false, the script's smp.partition calls set the partition: "
                 "write auto_partition: true, and parallel.partition in the job file");
  }
}

void read_precision(ForeignReader& reader, const Degrees1& degrees) {
  const bool fp16 = reader.boolean("fp16").value_or(false);
  const bool fp16_params = reader.boolean("fp16_params").value_or(false);
  const bool bf16 = reader.boolean("bf16").value_or(false);
  if (bf16 && (fp16 || fp16_params)) {
    reader.error("bf16", fmt::format("keys disagree: bf16 and {} are both true",
                                     fp16 ? "fp16" : "fp16_params"));
  } else if (bf16 && degrees.sharded == 1) {
    reader.error("bf16", "bf16 in SMP v1 requires sharded_data_parallel_degree above 1");
  } else if (bf16) {
    reader.set_from("bf16", "training.precision", "bf16");
  } else if (fp16 || fp16_params) {
    reader.set_from(fp16 ? "fp16" : "fp16_params", "training.precision", "fp16");
  }
  if (const auto elements = reader.whole("sdp_reduce_bucket_size")) {
    reader.set_from("sdp_reduce_bucket_size", "parallel.bucket_bytes",
                    fmt::format("{}", *elements * 4));
  }
}

void read_offload(ForeignReader& reader, const Degrees1& degrees, const ImportContext& context,
                  int64_t microbatches) {
  const auto offload = reader.boolean("offload_activations");
  if (offload) {
    reader.set_from("offload_activations", "parallel.offload_activations",
                    *offload ? "true" : "false");
  }
  if (offload == true) {
    reader.set("parallel.activation_checkpointing", "true", "offload_activations");
    if (microbatches == 1) {
      reader.error("offload_activations", "offload_activations requires microbatches above 1");
    }
  }
  const auto tasks = reader.whole("activation_loading_horizon");
  if (offload != true) {
    if (tasks) reader.note("activation_loading_horizon has no effect without offload_activations");
  } else if (context.num_layers) {
    const int64_t layers = (*context.num_layers + degrees.pipeline - 1) / degrees.pipeline;
    const int64_t count = tasks.value_or(4);  // SMP's default
    reader.set("parallel.activation_loading_horizon",
               fmt::format("{}", product_of({count, layers})),
               fmt::format("activation_loading_horizon = {} tasks of {} layers", count, layers));
  } else if (tasks) {
    reader.error("activation_loading_horizon",
                 "activation_loading_horizon counts pipeline tasks, each with the layers of a "
                 "stage: import the model's config.json in the same call, or remove the key");
  } else {
    reader.note(
        "activation_loading_horizon: SMP's default is 4 pipeline tasks; the job gets 2 layers, "
        "because the model is unknown");
  }
}

void read_pipeline(ForeignReader& reader, const Degrees1& degrees) {
  if (degrees.pipeline == 1) return;
  reader.set("parallel.pipeline", reader.text("pipeline").value_or("interleaved"),
             reader.has("pipeline") ? "pipeline" : "pipeline, by default");
  const auto active = reader.whole("active_microbatches");
  reader.set("parallel.active_microbatches",
             fmt::format("{}", active.value_or(degrees.pipeline + 2)),
             active ? "active_microbatches" : "active_microbatches, by default stages + 2");
  if (!reader.boolean("auto_partition").value_or(true)) return;
  // Both are SMP's ends of one scale: parameters alone, and time alone.
  const double by_default = reader.text("optimize") == "speed" ? 0.2 : 0.8;
  const auto given = reader.number("memory_weight");
  const double weight = given.value_or(by_default);
  reader.set(
      "parallel.partition_method", weight >= 0.5 ? "parameters" : "auto",
      fmt::format("auto_partition with memory_weight {}{}", weight, given ? "" : ", by default"));
}

void read_tensor(ForeignReader& reader, const Degrees1& degrees) {
  const bool prescaled = reader.boolean("prescaled_batch").value_or(false);
  if (degrees.tensor == 1) {
    if (reader.has("prescaled_batch")) {
      reader.set_from("prescaled_batch", "parallel.prescaled_batch", prescaled ? "true" : "false");
    }
    return;
  }
  reader.set("parallel.prescaled_batch", "true", "a job file counts samples per tensor group");
  if (!prescaled) {
    reader.warn("prescaled_batch",
                fmt::format("prescaled_batch is false, so each of the {} ranks of a tensor group "
                            "reads its own samples: training.micro_batch is the script's x {}",
                            degrees.tensor, degrees.tensor));
  }
  const bool speed = reader.text("optimize") == "speed";
  reader.set("parallel.sequence_parallel", speed ? "false" : "true",
             reader.has("optimize") ? fmt::format("optimize = {}", speed ? "speed" : "memory")
                                    : "optimize, by default memory");
}

}  // namespace

void read_smp_v1(const text::YamlNode& root, text::Diagnostics& diagnostics,
                 const ImportContext& context, Imported& out) {
  ForeignReader reader(smp_v1_keys(), diagnostics, out);
  const text::YamlNode* parameters = smp_parameters(root, diagnostics, out);
  if (parameters == nullptr) return;
  reader.read(
      refuse_other_version(*parameters, smp_v1_keys(), smp_v2_keys(), "SMP v2", diagnostics), "",
      UnknownKeys::kError);
  reader.copy_all();
  note_framework(reader, "smp-v1");
  if (const auto processes = smp_processes_per_host(root, diagnostics, out)) {
    reader.set("cluster.processes_per_host", fmt::format("{}", *processes),
               "mpi.processes_per_host");
  }
  const Degrees1 degrees = read_degrees(reader, *parameters);
  check_agreement(reader, degrees);
  const int64_t microbatches = reader.whole("microbatches").value_or(1);
  reader.set("training.microbatches", fmt::format("{}", microbatches),
             reader.has("microbatches") ? "microbatches" : "microbatches, by default");
  read_pipeline(reader, degrees);
  read_tensor(reader, degrees);
  read_precision(reader, degrees);
  read_offload(reader, degrees, context, microbatches);

  if (const auto flag = reader.boolean("shard_optimizer_state"); flag == true) {
    reader.set_from("shard_optimizer_state", "parallel.shard_optimizer_state", "true");
  } else if (degrees.sharded > 1) {
    reader.set_from("sharded_data_parallel_degree", "parallel.sharded_data_parallel_degree",
                    fmt::format("{}", degrees.sharded));
    reader.set("parallel.sharding", "parameters", "sharded_data_parallel_degree");
  } else {
    reader.set("parallel.sharding", "none", "neither optimizer state nor parameters are sharded");
  }
  if (reader.text("ddp_dist_backend") == "nccl") {
    reader.set_from("ddp_dist_backend", "parallel.data_collectives", "nccl");
  }
}

}  // namespace smp::importers
