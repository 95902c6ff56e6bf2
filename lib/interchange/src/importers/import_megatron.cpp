#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "importers/megatron_arguments.h"
#include "importers/megatron_flags.h"
#include "importers/megatron_line.h"
#include "importers/megatron_script.h"
#include "importers/printed_config.h"
#include "importers/smp_dictionary.h"
#include "shell/shell_script.h"

// A Megatron-LM command line (or a script that holds one) as keys of a job file.
namespace smp::importers {

void MegatronLine::read() {
  reader_.copy_all();
  reader_.set("parallel.framework", framework_, "Megatron");
  cluster();
  if (!reads_model_) {
    leave_model();
  } else if (has("num-layers") || has("hidden-size")) {
    model();
  }
  degrees();
  schedule();
  sharding();
  precision();
  recompute();
  optimizer();
  learning_rate();
  loss_scale();
  data();
  rest();
}

void MegatronLine::set(std::string_view flag, std::string_view path, std::string value) {
  reader_.set(std::string(path), std::move(value),
              fmt::format("{}--{}", has(flag) ? "" : "no ", flag));
}

void MegatronLine::set(std::string_view flag, std::string_view path, int64_t value) {
  set(flag, path, fmt::format("{}", value));
}

void MegatronLine::set(std::string_view flag, std::string_view path, bool value) {
  set(flag, path, std::string(value ? "true" : "false"));
}

void MegatronLine::cluster() {
  if (const auto hosts = whole("nnodes")) {
    known_.hosts = hosts;
    set("nnodes", "cluster.hosts", *hosts);
  }
  if (const auto processes = whole("nproc-per-node")) {
    known_.processes_per_host = processes;
    set("nproc-per-node", "cluster.processes_per_host", *processes);
  }
  if (known_.processes_per_host && !known_.hosts) known_.hosts = 1;
}

void MegatronLine::degrees() {
  tensor_ = whole("tensor-model-parallel-size").value_or(1);
  pipeline_ = whole("pipeline-model-parallel-size").value_or(1);
  context_ = whole("context-parallel-size").value_or(1);
  set("tensor-model-parallel-size", "parallel.tensor_parallel_degree", tensor_);
  set("pipeline-model-parallel-size", "parallel.pipeline_parallel_degree", pipeline_);
  if (has("context-parallel-size")) {
    set("context-parallel-size", "parallel.context_parallel_degree", context_);
  }
  if (context_ > 1 && has("cp-comm-type")) context_exchange();
  constexpr std::string_view kExpertTensor = "expert-tensor-parallel-size";
  const bool dense = reads_model_ && whole("num-experts").value_or(0) == 0;
  if (has(kExpertTensor) && dense) {
    reader_.warn(kExpertTensor, fmt::format("--{}: the model has no experts", kExpertTensor));
  } else if (has(kExpertTensor)) {
    set(kExpertTensor, "parallel.expert_tensor_degree", *whole(kExpertTensor));
  }
  // Megatron's order of ranks: tensor, context, data, pipeline from fast to slow.
  set("use-tp-pp-dp-mapping", "parallel.placement_strategy",
      std::string(has("use-tp-pp-dp-mapping") ? "cluster" : "PDT"));
  if (tensor_ > 1) {
    set("sequence-parallel", "parallel.sequence_parallel", has("sequence-parallel"));
  }
}

// TransformerConfig.cp_comm_type: p2p passes keys and values round a ring, a2a exchanges heads, and
// a2a+p2p exchanges them within the first level of hierarchical_context_parallel_sizes.
void MegatronLine::context_exchange() {
  constexpr std::string_view kFlag = "cp-comm-type", kSizes = "hierarchical-context-parallel-sizes";
  constexpr std::string_view kPath = "parallel.context_exchange_degree";
  std::set<std::string> types;  // of each layer, or one for all
  for (const text::YamlNode& item : reader_.node(kFlag)->items) types.insert(item.text);
  if (has(kSizes) && types != std::set<std::string>{"a2a+p2p"}) {
    reader_.warn(kSizes, fmt::format("--{} has no effect without --{} a2a+p2p", kSizes, kFlag));
  }
  if (types == std::set<std::string>{"p2p"}) return set(kFlag, kPath, int64_t{1});
  if (types == std::set<std::string>{"a2a"}) return set(kFlag, kPath, context_);
  if (types != std::set<std::string>{"a2a+p2p"}) {
    return reader_.error(kFlag,
                         fmt::format("--{} {} is not supported: expected p2p, a2a or a2a+p2p "
                                     "for all layers",
                                     kFlag, fmt::join(types, " ")));
  }
  const text::YamlNode* const sizes = reader_.node(kSizes);
  const bool has_two = sizes != nullptr && sizes->items.size() == 2;
  const auto exchange = has_two ? whole_value(sizes->items.front().text) : std::nullopt;
  const auto ring = has_two ? whole_value(sizes->items.back().text) : std::nullopt;
  if (!exchange || !ring || *exchange < 1 || context_ % *exchange != 0 ||
      context_ / *exchange != *ring) {
    return reader_.error(kFlag,
                         fmt::format("--{} a2a+p2p needs --{} with two sizes whose product is "
                                     "--context-parallel-size ({})",
                                     kFlag, kSizes, context_));
  }
  set(kSizes, kPath, *exchange);
}

void MegatronLine::schedule() {
  const auto layers = has("num-layers") ? whole("num-layers") : known_.num_layers;
  const auto chunk = whole("num-layers-per-virtual-pipeline-stage");
  auto chunks = whole("num-virtual-stages-per-pipeline-rank");
  std::string_view flag = "num-virtual-stages-per-pipeline-rank";
  if (chunk && chunks) {
    reader_.error(
        flag,
        "--num-virtual-stages-per-pipeline-rank and --num-layers-per-virtual-pipeline-stage both "
        "set the virtual stages: remove one");
  } else if (chunk && layers) {
    flag = "num-layers-per-virtual-pipeline-stage";
    if (*layers % product_of({*chunk, pipeline_}) != 0) {
      reader_.error(flag, fmt::format("--num-layers ({}) is not divisible by stages x "
                                      "--num-layers-per-virtual-pipeline-stage = {} x {}",
                                      *layers, pipeline_, *chunk));
    } else {
      chunks = *layers / pipeline_ / *chunk;
    }
  } else if (chunk) {
    reader_.error("num-layers-per-virtual-pipeline-stage",
                  "--num-layers-per-virtual-pipeline-stage needs --num-layers, or the model's "
                  "config.json in the same call");
  }
  if (pipeline_ > 1) {
    const bool interleaves = chunks.value_or(1) > 1;
    reader_.set("parallel.pipeline", interleaves ? "virtual" : "interleaved",
                interleaves ? fmt::format("--{}", flag) : "Megatron's pipeline is 1F1B");
    if (interleaves) set(flag, "parallel.virtual_pipeline_degree", *chunks);
  }
  uneven(layers);
  hybrid_partition();
}

void MegatronLine::uneven(std::optional<int64_t> layers) {
  const auto first = whole("decoder-first-pipeline-num-layers");
  const auto last = whole("decoder-last-pipeline-num-layers");
  if (!first && !last) return;
  const std::string_view flag =
      first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
  const int64_t middle = pipeline_ - (first ? 1 : 0) - (last ? 1 : 0);
  const int64_t rest = layers.value_or(0) - first.value_or(0) - last.value_or(0);
  if (!layers) {
    reader_.error(flag, fmt::format("--{} needs --num-layers, or the model's config.json in the "
                                    "same call",
                                    flag));
    return;
  }
  if (middle < 0 || (middle == 0 && rest != 0) ||
      (middle > 0 && (rest <= 0 || rest % middle != 0))) {
    reader_.error(flag,
                  fmt::format("{} layers remain for {} other stages, which does not divide evenly",
                              rest, middle));
    return;
  }
  std::string list;
  for (int64_t stage = 0; stage < pipeline_; ++stage) {
    const int64_t own = stage == 0 && first              ? *first
                        : stage == pipeline_ - 1 && last ? *last
                                                         : rest / std::max<int64_t>(middle, 1);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", own);
  }
  set(flag, "parallel.partition", fmt::format("[{}]", list));
}

void MegatronLine::sharding() {
  const bool own_fsdp = has("use-megatron-fsdp") || has("use-custom-fsdp");
  const std::string strategy = reader_.text("data-parallel-sharding-strategy").value_or("no_shard");
  std::string kind = "none";
  std::string_view flag = "use-distributed-optimizer";
  if (has("use-torch-fsdp2")) {
    kind = "parameters";
    flag = "use-torch-fsdp2";
  } else if (own_fsdp) {
    flag = "data-parallel-sharding-strategy";
    kind = strategy == "optim_grads_params" ? "parameters"
           : strategy == "optim_grads"      ? "gradients"
           : strategy == "optim"            ? "optimizer_state"
                                            : "none";
  } else if (has("use-distributed-optimizer")) {
    kind = "optimizer_state";
  } else if (const auto stage = whole("zero-stage")) {
    flag = "zero-stage";
    constexpr std::array<const char*, 4> kStages = {"none", "optimizer_state", "gradients",
                                                    "parameters"};
    kind = kStages.at(static_cast<size_t>(*stage));
  }
  if (const auto file = reader_.text("deepspeed_config")) {
    reader_.warn(
        "deepspeed_config",
        fmt::format("the settings of {} are not imported: import that file separately, and compare",
                    file->empty() ? "that file" : *file));
  }
  const std::string origin = has(flag) ? fmt::format("--{}", flag) : fmt::format("no --{}", flag);
  const int64_t instances = whole("num-distributed-optimizer-instances").value_or(1);
  if (instances == 1 || kind == "none") {
    set_shard_over_all(reader_, kind, known_, context_, tensor_, pipeline_, origin);
    return;
  }
  const auto world = known_.world();
  const int64_t ranks = product_of({tensor_, pipeline_, context_, instances});
  if (!world) {
    reader_.error("num-distributed-optimizer-instances",
                  "--num-distributed-optimizer-instances needs the number of ranks: give --hosts "
                  "and --processes-per-host, or torchrun's --nnodes and --nproc-per-node");
  } else if (*world % ranks != 0) {
    reader_.error("num-distributed-optimizer-instances",
                  fmt::format("{} ranks are not divisible by tensor x pipeline x context x "
                              "instances = {} x {} x {} x {}",
                              *world, tensor_, pipeline_, context_, instances));
  } else {
    reader_.set("parallel.sharding", *world / ranks > 1 ? kind : "none", origin);
    set("num-distributed-optimizer-instances", "parallel.sharded_data_parallel_degree",
        *world / ranks);
  }
}

void MegatronLine::precision() {
  if (has("bf16") && has("fp16")) {
    reader_.error("fp16", "--fp16 and --bf16 cannot both be given");
    return;
  }
  if (has("fp8-format") && has("fp4-format")) {
    reader_.error("fp4-format", "--fp4-format and --fp8-format cannot both be given");
    return;
  }
  constexpr std::array<std::array<std::string_view, 2>, 4> kFlags = {
      {{"fp4-format", "nvfp4"}, {"fp8-format", "fp8"}, {"fp16", "fp16"}, {"bf16", "bf16"}}};
  const auto* given =
      std::ranges::find_if(kFlags, [&](const auto& each) { return has(each.front()); });
  const bool any = given != kFlags.end();
  set(any ? given->front() : "bf16", "training.precision",
      std::string(any ? given->back() : "fp32"));
  if (has("fp8-format") && has("fp8-recipe")) {
    const std::string recipe = *reader_.text("fp8-recipe");
    set("fp8-recipe", "training.fp8_recipe", recipe == "tensorwise" ? "current" : recipe);
  }
  for (const char* flag : {"fp8-param-gather", "fp4-param-gather"}) {
    if (has(flag)) set(flag, "training.fp8_parameters", true);
  }
  if (has("accumulate-allreduce-grads-in-fp32")) {
    set("accumulate-allreduce-grads-in-fp32", "training.accumulate_gradients_in_fp32", true);
  } else if (has("grad-reduce-in-bf16")) {
    set("grad-reduce-in-bf16", "training.accumulate_gradients_in_fp32", false);
  } else if (reader_.text("main-grads-dtype").value_or("fp32") == "bf16") {
    set("main-grads-dtype", "training.accumulate_gradients_in_fp32", false);
  }
}

void MegatronLine::recompute() {
  const auto granularity = reader_.text("recompute-granularity");
  std::string_view flag = "recompute-activations";
  std::string mode = has(flag) ? "selective" : "none";
  if (granularity) {
    flag = "recompute-granularity";
    mode = *granularity;
  } else if (has("checkpoint-activations")) {
    flag = "checkpoint-activations";
    mode = "full";
  }
  std::vector<std::string> modules;
  if (mode == "selective" && has("recompute-modules")) {
    for (const text::YamlNode& item : reader_.node("recompute-modules")->items) {
      modules.push_back(item.text);
    }
    if (modules.empty()) mode = "none";  // Megatron-LM recomputes the listed modules alone
  }
  set(flag, "parallel.recompute", mode);
  if (!modules.empty()) {
    set("recompute-modules", "parallel.recompute_modules",
        fmt::format("[{}]", fmt::join(modules, ", ")));
  }
  const auto layers = whole("recompute-num-layers");
  if (granularity == "full" && !has("recompute-method")) {
    reader_.error("recompute-granularity",
                  "--recompute-granularity full needs --recompute-method uniform or block");
  }
  if (layers && reader_.text("recompute-method") == "block") {
    set("recompute-num-layers", "parallel.recompute_layers", *layers);
  } else if (layers && *layers > 1 && granularity == "full") {
    set("recompute-num-layers", "parallel.activation_checkpointing_strategy",
        fmt::format("group_{}", *layers));
  }
  if (has("distribute-saved-activations")) {
    set("distribute-saved-activations", "parallel.partition_activations", true);
  }
  if (has("optimizer-cpu-offload")) {
    set("optimizer-cpu-offload", "parallel.offload_optimizer", true);
    if (reader_.number("optimizer-offload-fraction").value_or(1) < 1) {
      reader_.warn("optimizer-offload-fraction",
                   "with a fraction below 1, Megatron keeps a part of the optimizer state on the "
                   "accelerator; the plan offloads all of it");
    }
  }
}

void MegatronLine::rest() {
  const auto backend = reader_.text("attention-backend");
  if (backend || has("use-flash-attn")) {
    const bool unfused = backend == "unfused" || backend == "local";
    set(backend ? "attention-backend" : "use-flash-attn", "training.attention",
        std::string(unfused ? "unfused" : "flash"));
  }
  if (const auto elements = whole("ddp-bucket-size")) {
    set("ddp-bucket-size", "parallel.bucket_bytes", *elements * 4);
  }
  if (const text::YamlNode* ramp = reader_.node("rampup-batch-size")) {
    const bool numbers =
        ramp->items.size() == 3 && std::ranges::all_of(ramp->items, [](const text::YamlNode& item) {
          return whole_value(item.text).value_or(0) > 0;
        });
    if (!numbers) {
      reader_.error("rampup-batch-size",
                    "--rampup-batch-size takes three numbers: start, increment, samples");
    } else {
      set("rampup-batch-size", "training.batch_ramp_start", ramp->items[0].text);
      set("rampup-batch-size", "training.batch_ramp_increment", ramp->items[1].text);
    }
  }
}

void read_megatron(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                   const ImportContext& context, Imported& out) {
  if (const std::string printed = printed_megatron_arguments(source.text); !printed.empty()) {
    read_printed_megatron(printed, number, diagnostics, context, out);
    return;
  }
  text::Diagnostics quiet;
  const text::YamlTree tree =
      text::parse_yaml(source.text, quiet.add_source(source.path, source.text), quiet);
  if (is_megatron_yaml(tree.root)) {
    const text::YamlTree own = text::parse_yaml(source.text, number, diagnostics);
    if (own.complete) read_megatron_yaml(own.root, diagnostics, context, out);
    return;
  }
  const shell::ShellScript script = shell::read_shell_script(source.text, number, diagnostics);
  if (diagnostics.any()) return;
  const std::vector<shell::ShellWord> words = megatron_command(script, number, diagnostics, out);
  if (diagnostics.any()) return;
  ForeignReader reader(megatron_keys(), diagnostics, out);
  read_megatron_flags(words, context, reader, diagnostics, out);
  MegatronLine(reader, context).read();
}

}  // namespace smp::importers
