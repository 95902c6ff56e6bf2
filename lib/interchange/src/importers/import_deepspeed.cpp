#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/auto_values.h"
#include "importers/foreign_keys.h"
#include "importers/import_deepspeed_training.h"
#include "importers/smp_dictionary.h"

// A DeepSpeed configuration (JSON) as keys of a job file.
namespace smp::importers {
namespace {

constexpr std::string_view kZero = "zero_optimization.";

std::string zero(std::string_view key) { return std::string(kZero) + std::string(key); }

std::string_view sharding_of(int64_t stage) {
  switch (stage) {
    case 1: return "optimizer_state";
    case 2: return "gradients";
    case 3: return "parameters";
    default: return "none";
  }
}

// Keys of the nested blocks are DeepSpeed's errors too; at the top it lets unknown keys pass.
void read_all(const text::YamlNode& root, ForeignReader& reader) {
  for (const text::YamlEntry& entry : root.entries) {
    text::YamlNode one = root;
    one.entries = {entry};
    const bool nested = entry.value.kind == text::YamlNode::Kind::kMap;
    reader.read(one, "", nested ? UnknownKeys::kError : UnknownKeys::kWarning, true);
  }
}

std::string read_precision(ForeignReader& reader) {
  const bool fp16 = reader.boolean("fp16.enabled").value_or(false);
  const std::string bf16_key = reader.has("bfloat16.enabled") ? "bfloat16.enabled" : "bf16.enabled";
  const bool bf16 = reader.boolean(bf16_key).value_or(false);
  const bool autocast = reader.boolean("torch_autocast.enabled").value_or(false);
  if (fp16 && bf16) {
    reader.error(bf16_key, "keys disagree: fp16 and bf16 are both enabled");
    return "fp32";
  }
  if (autocast) {
    const bool half = reader.text("torch_autocast.dtype").value_or("").ends_with("float16") &&
                      !reader.text("torch_autocast.dtype")->ends_with("bfloat16");
    reader.set("training.precision", half ? "fp16" : "bf16", "torch_autocast");
    return half ? "fp16" : "bf16";
  }
  if (fp16 || bf16) {
    reader.set("training.precision", fp16 ? "fp16" : "bf16", fp16 ? "fp16.enabled" : bf16_key);
    return fp16 ? "fp16" : "bf16";
  }
  // "auto" leaves it to whoever fills the file in.
  if (!reader.is_auto("fp16.enabled") && !reader.is_auto(bf16_key)) {
    reader.set("training.precision", "fp32", "neither fp16 nor bf16 is enabled");
  }
  return "fp32";
}

struct Layout {
  int64_t stage = 0;
  int64_t pipeline = 1;
  int64_t tensor = 1;
};

// DeepSpeed searches the names of Python classes; what those of a transformer's layers find are its
// blocks.
void read_partition(ForeignReader& reader) {
  constexpr std::string_view kPartition = "pipeline.partition";
  const std::string method = reader.text(kPartition).value_or("best");
  if (method == "uniform" || method == "parameters") {
    reader.set_from(kPartition, "parallel.partition_method", method);
  } else if (method.starts_with("type:")) {
    reader.set_from(kPartition, "parallel.partition_method", "type:block");
    reader.warn(kPartition, fmt::format("{} matches names of Python classes; the job gives each "
                                        "stage the same number of blocks (type:block)",
                                        method));
  } else if (method != "best") {
    reader.error(
        kPartition,
        fmt::format("{} is not supported: expected uniform, parameters, type:REGEX or best",
                    method));
  }
}

Layout read_degrees(ForeignReader& reader) {
  Layout layout;
  layout.stage = reader.whole(zero("stage")).value_or(0);
  layout.tensor = std::max<int64_t>(reader.whole("tensor_parallel.autotp_size").value_or(1), 1);
  layout.pipeline = reader.whole("pipeline.stages").value_or(1);
  if (reader.has("tensor_parallel.autotp_size")) {
    reader.set_from("tensor_parallel.autotp_size", "parallel.tensor_parallel_degree",
                    fmt::format("{}", layout.tensor));
  }
  if (reader.has("pipeline.stages")) {
    reader.set_from("pipeline.stages", "parallel.pipeline_parallel_degree",
                    fmt::format("{}", layout.pipeline));
    if (layout.pipeline > 1) {
      reader.set("parallel.pipeline", "interleaved", "DeepSpeed's pipeline is 1F1B");
      read_partition(reader);
    }
  }
  if (layout.pipeline > 1 && layout.stage >= 2) {
    reader.error("pipeline.stages", fmt::format("DeepSpeed does not combine a pipeline ({} stages) "
                                                "with ZeRO stage {}: use stage 0 or 1",
                                                layout.pipeline, layout.stage));
  }
  return layout;
}

void read_sharding(ForeignReader& reader, const Layout& layout, const ImportContext& context) {
  const std::string_view sharding = sharding_of(layout.stage);
  const std::string origin = fmt::format("zero_optimization.stage = {}", layout.stage);
  const int64_t mics = reader.whole(zero("mics_shard_size")).value_or(-1);
  const int64_t hpz = reader.whole(zero("zero_hpz_partition_size")).value_or(1);
  if ((mics > 0 || hpz > 1) && layout.stage != 3) {
    const std::string key = zero(mics > 0 ? "mics_shard_size" : "zero_hpz_partition_size");
    reader.error(key, fmt::format("{} requires stage 3, not {}", key, layout.stage));
    return;
  }
  if (mics > 0 && hpz > 1) {
    reader.error(zero("mics_shard_size"),
                 "keys disagree: mics_shard_size and zero_hpz_partition_size both set the shard "
                 "degree: remove one");
    return;
  }
  if (mics > 1 || hpz > 1) {
    const std::string key = zero(mics > 1 ? "mics_shard_size" : "zero_hpz_partition_size");
    reader.set("parallel.sharding", std::string(sharding), origin);
    reader.set_from(key, "parallel.sharded_data_parallel_degree",
                    fmt::format("{}", mics > 1 ? mics : hpz));
    if (hpz > 1) {
      reader.warn(key,
                  "hpZ shards the optimizer's state over all ranks and keeps a second copy of the "
                  "16-bit weights in each group; the job gets hybrid shard, the nearest layout, "
                  "which needs more memory");
    }
    return;
  }
  const bool offloads = reader.text(zero("offload_param.device")) == "cpu" ||
                        reader.boolean(zero("cpu_offload_params")).value_or(false) ||
                        reader.boolean(zero("cpu_offload_param")).value_or(false);
  if (mics == 1 && offloads) {
    reader.error(zero("mics_shard_size"),
                 "mics_shard_size: 1 does not shard parameters, but offload_param offloads shards: "
                 "raise mics_shard_size, or remove offload_param");
    return;
  }
  set_shard_over_all(reader, mics == 1 ? "none" : sharding, context, 1, layout.tensor,
                     layout.pipeline, origin, {}, offloads);
}

void read_offload(ForeignReader& reader, const Layout& layout) {
  const auto optimizer = reader.text(zero("offload_optimizer.device"));
  const auto parameters = reader.text(zero("offload_param.device"));
  for (const std::string_view part : {"offload_optimizer.device", "offload_param.device"}) {
    if (reader.text(zero(part)) == "nvme") {
      reader.error(zero(part), fmt::format("{}: nvme is not supported; use cpu", zero(part)));
    }
  }
  const bool old_optimizer = reader.boolean(zero("cpu_offload")).value_or(false);
  const bool old_parameters = reader.boolean(zero("cpu_offload_params")).value_or(false) ||
                              reader.boolean(zero("cpu_offload_param")).value_or(false);
  if (optimizer == "cpu" || old_optimizer) {
    if (layout.stage == 0) {
      reader.error(zero(old_optimizer ? "cpu_offload" : "offload_optimizer.device"),
                   "optimizer offload requires ZeRO stage 1 or higher, not stage 0");
    }
    reader.set("parallel.offload_optimizer", "true",
               old_optimizer ? "cpu_offload" : "offload_optimizer.device = cpu");
    if (reader.number(zero("offload_optimizer.ratio")).value_or(1) < 1) {
      reader.warn(zero("offload_optimizer.ratio"),
                  "with a ratio below 1, DeepSpeed keeps a part of the optimizer state on the "
                  "accelerator; the plan offloads all of it");
    }
  }
  if (parameters == "cpu" || old_parameters) {
    if (layout.stage != 3) {
      reader.error(
          zero(old_parameters ? "cpu_offload_params" : "offload_param.device"),
          fmt::format("parameter offload requires ZeRO stage 3, not stage {}", layout.stage));
    }
    reader.set("parallel.offload_parameters", "true", "offload_param.device = cpu");
  }
  if (reader.boolean("activation_checkpointing.partition_activations").value_or(false)) {
    reader.set_from("activation_checkpointing.partition_activations",
                    "parallel.partition_activations", "true");
  }
  if (reader.boolean("activation_checkpointing.cpu_checkpointing").value_or(false)) {
    reader.set_from("activation_checkpointing.cpu_checkpointing", "parallel.offload_activations",
                    "true");
    reader.set("parallel.activation_checkpointing", "true", "cpu_checkpointing");
  } else if (const auto interval = reader.whole("pipeline.activation_checkpoint_interval")) {
    if (*interval > 1) {
      reader.warn("pipeline.activation_checkpoint_interval",
                  fmt::format("DeepSpeed keeps one activation checkpoint per {} layers; the plan "
                              "keeps one per layer",
                              *interval));
    }
    reader.set_from("pipeline.activation_checkpoint_interval", "parallel.activation_checkpointing",
                    *interval > 0 ? "true" : "false");
  }
}

// train_batch_size = micro batch x accumulation x data-parallel ranks (DeepSpeed asserts it).
void read_batch(ForeignReader& reader, const Layout& layout, const ImportContext& context) {
  const auto global = reader.whole("train_batch_size");
  const auto micro = reader.whole("train_micro_batch_size_per_gpu");
  const auto steps = reader.whole("gradient_accumulation_steps");
  const auto copy = [&](std::string_view key, std::string_view path, std::optional<int64_t> value) {
    if (value) reader.set_from(key, std::string(path), fmt::format("{}", *value));
  };
  copy("train_batch_size", "training.global_batch", global);
  copy("train_micro_batch_size_per_gpu", "training.micro_batch", micro);
  copy("gradient_accumulation_steps", "training.microbatches", steps);
  // What DeepSpeed takes where neither is given (runtime/config.py).
  const auto open = [&](std::string_view key) { return reader.has(key) || reader.is_auto(key); };
  if (micro && !open("train_batch_size") && !open("gradient_accumulation_steps")) {
    reader.assume("gradient_accumulation_steps", "training.microbatches", "1");
  }
  if (!global) return;
  const int64_t per_rank = product_of({micro.value_or(1), steps.value_or(1)});
  if (*global % per_rank != 0) {
    reader.error(
        "train_batch_size",
        fmt::format("train_batch_size ({}) is not divisible by "
                    "train_micro_batch_size_per_gpu x gradient_accumulation_steps = {} x {}",
                    *global, micro.value_or(1), steps.value_or(1)));
    return;
  }
  const auto world = context.world();
  if (!world || !micro || !steps) return;
  const int64_t data = *world / product_of({layout.tensor, layout.pipeline});
  if (product_of({per_rank, data}) != *global) {
    reader.error(
        "train_batch_size",
        fmt::format("train_batch_size ({}) differs from train_micro_batch_size_per_gpu x "
                    "gradient_accumulation_steps x data-parallel ranks = {} x {} x {} = {}",
                    *global, *micro, *steps, data, product_of({per_rank, data})));
  }
}

// Sizes that count elements. The Trainer of transformers fills in "auto" by the model's width
// (integrations/deepspeed.py, trainer_config_finalize).
void read_sizes(ForeignReader& reader, const ImportContext& context) {
  constexpr int64_t kGradientBytes = 4;
  const auto width = context.hidden_size;
  const std::string bucket = zero("reduce_bucket_size");
  if (const auto elements = reader.whole(bucket)) {
    reader.set_from(
        bucket, "parallel.bucket_bytes",
        fmt::format("{}", product_of({std::max<int64_t>(*elements, 1), kGradientBytes})));
  } else if (reader.is_auto(bucket) && width) {
    reader.set("parallel.bucket_bytes",
               fmt::format("{}", product_of({*width, *width, kGradientBytes})),
               fmt::format("{} = auto = hidden_size squared", bucket));
  }
  for (const std::string_view name :
       {"param_persistence_threshold", "stage3_param_persistence_threshold"}) {
    constexpr std::string_view kPath = "parallel.param_persistence_threshold";
    const std::string key = zero(name);
    if (const auto elements = reader.whole(key)) {
      reader.set_from(key, std::string(kPath), fmt::format("{}", *elements));
    } else if (reader.is_auto(key) && width) {
      reader.set(std::string(kPath), fmt::format("{}", product_of({*width, 10})),
                 fmt::format("{} = auto = 10 x hidden_size", key));
    }
  }
  for (const std::string_view name : {"max_live_parameters", "stage3_max_live_parameters"}) {
    const std::string key = zero(name);
    if (const auto elements = reader.whole(key)) {
      reader.set_from(key, "parallel.max_live_parameters",
                      fmt::format("{}", std::max<int64_t>(*elements, 1)));
    }
  }
}

// DeepSpeed has None for the sizes of a batch that are not given; any other number that is null
// ends its start (pydantic, or a comparison with None).
void refuse_nulls(ForeignReader& reader) {
  constexpr std::array<std::string_view, 3> kMayBeNull = {
      "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"};
  for (const ForeignKey& row : deepspeed_keys()) {
    const bool is_number = row.form == Form::kWhole || row.form == Form::kNumber;
    if (is_number && row.use != Use::kIgnored && std::ranges::count(kMayBeNull, row.key) == 0)
      reader.refuse_null(row.key);
  }
}

void say_loss_scale(ForeignReader& reader) {
  if (reader.is_auto("fp16.enabled") && !reader.boolean("bf16.enabled").value_or(false) &&
      (reader.has("fp16.loss_scale") || reader.has("fp16.initial_scale_power"))) {
    reader.warn_of_file(
        "fp16.enabled is \"auto\", so the loss scale keys of fp16 are left out; they apply with "
        "training.precision: fp16");
  }
}

}  // namespace

void read_deepspeed(const text::YamlNode& root, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out) {
  if (root.kind != text::YamlNode::Kind::kMap) {
    diagnostics.error(root.place, fmt::format("a DeepSpeed configuration must be a map, not {}",
                                              text::described(root)));
    return;
  }
  ForeignReader reader(deepspeed_keys(), diagnostics, out);
  read_all(root, reader);
  refuse_nulls(reader);
  reader.copy_all();
  if (!reader.has("gradient_clipping") && !reader.is_auto("gradient_clipping")) {
    reader.assume("gradient_clipping", "training.optimizer.gradient_clipping", "0");
  }
  reader.set("parallel.framework", "deepspeed", "DeepSpeed");
  const Layout layout = read_degrees(reader);
  const std::string precision = read_precision(reader);
  read_sharding(reader, layout, context);
  read_offload(reader, layout);
  read_batch(reader, layout, context);
  read_deepspeed_optimizer(reader);
  read_deepspeed_schedule(reader);
  if (precision == "fp16" && !reader.has("torch_autocast.enabled")) {
    read_deepspeed_loss_scale(reader);
  }
  read_sizes(reader, context);
  if (const auto type = reader.text("data_types.grad_accum_dtype")) {
    reader.set_from("data_types.grad_accum_dtype", "training.accumulate_gradients_in_fp32",
                    *type == "fp32" ? "true" : "false");
  }
  say_autos(reader, out);
  say_loss_scale(reader);
}

}  // namespace smp::importers
