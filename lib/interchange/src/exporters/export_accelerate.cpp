#include <fmt/format.h>

#include "exporters/export_view.h"
#include "smp/plan/spec/job_names.h"

// accelerate's YAML: FSDP 2, DeepSpeed or Megatron-LM, whichever can say the layout. Rules:
// accelerate 1.15, commands/config/config_args.py, parallelism_config.py.
namespace smp::exporters {
namespace {

enum class Engine { kDdp, kFsdp, kDeepSpeed, kMegatron };

// Tensor, pipeline and optimizer-state sharding together are Megatron's; FSDP has the rest.
Engine engine_of(const ExportView& view) {
  const mesh::Degrees& degrees = view.degrees;
  const bool plain = degrees.tensor == 1 && degrees.context == 1 && degrees.pipeline == 1;
  if (degrees.pipeline > 1 || degrees.expert > 1) return Engine::kMegatron;
  if (view.sharding == Sharding::kOptimizerState) {
    return plain && degrees.replica == 1 ? Engine::kDeepSpeed : Engine::kMegatron;
  }
  if (view.sharding != Sharding::kNone) {
    const bool one_moves = view.offload_optimizer != view.offload_parameters;
    return plain && degrees.replica == 1 && one_moves ? Engine::kDeepSpeed : Engine::kFsdp;
  }
  return plain ? Engine::kDdp : degrees.data() > 1 ? Engine::kMegatron : Engine::kFsdp;
}

void refuse(const ExportView& view, Engine engine, Refusals& refusals) {
  const bool megatron = engine == Engine::kMegatron;
  refusals.precision_among({Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8},
                           Precision::kFp32);
  refusals.refuse_if(
      megatron && static_cast<int>(view.sharding) >= 2,
      fmt::format("sharding: {} in a pipeline or with experts", name_of(view.sharding)),
      "sharding: optimizer_state (Megatron's distributed optimizer)");
  refusals.refuse_if(megatron && view.degrees.replica > 1 && view.sharding != Sharding::kNone,
                     fmt::format("sharding: {} over {} of {} data-parallel ranks",
                                 name_of(view.sharding), view.degrees.shard, view.degrees.data()),
                     "sharding over all data-parallel ranks");
  refusals.refuse_if(view.degrees.pipeline > 1 && view.schedule != PipelineKind::kInterleaved,
                     fmt::format("pipeline: {}", name_of(view.schedule)), "pipeline: interleaved");
  refusals.refuse_if(view.degrees.pipeline > 1 && !view.partition_is_even(),
                     "a partition of unequal stages", "the same number of layers in each stage");
  refusals.no_partitioned_activations();
  refusals.offloads_checkpoints_alone();
  refusals.all_tensor_kinds();
  refusals.no_exchange();
  refusals.refuse_if(view.offload_activations && engine != Engine::kFsdp,
                     "offload_activations without FSDP", "sharding: parameters");
  refusals.refuse_if(view.offload_parameters && !view.offload_optimizer && engine == Engine::kFsdp,
                     "offload_parameters without offload_optimizer", "both keys");
  refusals.refuse_if((view.offload_parameters || view.offload_optimizer) && engine == Engine::kDdp,
                     "offload without sharding", "sharding: parameters");
  refusals.refuse_if(engine == Engine::kFsdp && view.offload_optimizer && !view.offload_parameters,
                     "offload_optimizer without offload_parameters", "both keys");
  refusals.refuse_if(megatron && view.offload_parameters, "offload_parameters",
                     "offload_optimizer alone");
}

class Yaml {
 public:
  template <class T>
  void top(std::string_view key, const T& value) {
    text_ += fmt::format("{}: {}\n", key, value);
  }
  void section(std::string_view key) { text_ += fmt::format("{}:\n", key); }
  template <class T>
  void in(std::string_view key, const T& value) {
    text_ += fmt::format("  {}: {}\n", key, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void fsdp(const ExportView& view, Yaml& yaml) {
  const mesh::Degrees& degrees = view.degrees;
  yaml.section("fsdp_config");
  yaml.in("fsdp_version", 2);
  yaml.in("fsdp_reshard_after_forward", view.sharding == Sharding::kParameters);
  yaml.in("fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  yaml.in("fsdp_activation_checkpointing", view.recompute == Recompute::kFull);
  if (view.offload_activations) yaml.in("fsdp_activation_checkpointing_offload", true);
  yaml.in("fsdp_offload_params", view.offload_parameters);
  yaml.in("fsdp_cpu_ram_efficient_loading", true);
  yaml.in("fsdp_state_dict_type", "SHARDED_STATE_DICT");
  if (degrees.replica == 1 && degrees.tensor == 1 && degrees.context == 1) return;
  yaml.section("parallelism_config");
  yaml.in("parallelism_config_dp_replicate_size", degrees.replica);
  yaml.in("parallelism_config_dp_shard_size", degrees.shard);
  yaml.in("parallelism_config_tp_size", degrees.tensor);
  yaml.in("parallelism_config_cp_size", degrees.context);
}

void deepspeed(const ExportView& view, Yaml& yaml) {
  yaml.section("deepspeed_config");
  yaml.in("zero_stage", static_cast<int>(view.sharding));
  yaml.in("gradient_accumulation_steps", view.microbatches);
  yaml.in("gradient_clipping", view.training.optimizer.gradient_clipping);
  yaml.in("offload_optimizer_device", view.offload_optimizer ? "cpu" : "none");
  yaml.in("offload_param_device", view.offload_parameters ? "cpu" : "none");
  yaml.in("zero3_init_flag", view.sharding == Sharding::kParameters);
}

void megatron(const ExportView& view, Yaml& yaml) {
  const mesh::Degrees& degrees = view.degrees;
  const auto in = [&](std::string_view key, const auto& value) {
    yaml.in(fmt::format("megatron_lm_{}", key), value);
  };
  yaml.section("megatron_lm_config");
  in("tp_degree", degrees.tensor);
  in("pp_degree", degrees.pipeline);
  in("num_micro_batches", view.microbatches);
  in("sequence_parallelism", view.sequence_parallel);
  in("recompute_activations", view.recompute == Recompute::kSelective);
  in("use_distributed_optimizer", view.sharding == Sharding::kOptimizerState);
  in("gradient_clipping", view.training.optimizer.gradient_clipping);
  if (degrees.context > 1) in("context_parallel_size", degrees.context);
  if (degrees.expert > 1) in("expert_model_parallel_size", degrees.expert);
  if (degrees.expert > 1) in("expert_tensor_parallel_size", degrees.expert_tensor);
  if (view.recompute == Recompute::kFull) {
    in("recompute_granularity", "full");
    in("recompute_method", "uniform");
    in("recompute_num_layers", 1);
  }
  if (view.offload_optimizer) in("optimizer_cpu_offload", true);
}

}  // namespace

std::string write_accelerate(const ExportView& view, Refusals& refusals) {
  const Engine engine = engine_of(view);
  refuse(view, engine, refusals);
  Yaml yaml;
  const bool one = view.degrees.world() == 1;
  const bool cpu = view.plan.job.cluster.device == DeviceKind::kCpu;
  yaml.top("compute_environment", "LOCAL_MACHINE");
  yaml.top("distributed_type", engine == Engine::kFsdp        ? "FSDP"
                               : engine == Engine::kDeepSpeed ? "DEEPSPEED"
                               : engine == Engine::kMegatron  ? "MEGATRON_LM"
                               : one                          ? "'NO'"
                               : cpu                          ? "MULTI_CPU"
                                                              : "MULTI_GPU");
  yaml.top("mixed_precision",
           view.precision == Precision::kFp32 ? "'no'" : name_of(view.precision));
  yaml.top("num_machines", view.hosts);
  yaml.top("num_processes", view.degrees.world());
  yaml.top("machine_rank", 0);
  yaml.top("main_training_function", "main");
  yaml.top("rdzv_backend", view.hosts > 1 ? "c10d" : "static");
  yaml.top("same_network", true);
  yaml.top("use_cpu", cpu);
  if (engine == Engine::kFsdp) fsdp(view, yaml);
  if (engine == Engine::kDeepSpeed) deepspeed(view, yaml);
  if (engine == Engine::kMegatron) megatron(view, yaml);
  if (view.hosts > 1) {
    refusals.note("set machine_rank, main_process_ip and main_process_port on each host");
  }
  if (view.microbatches > 1 && (engine == Engine::kFsdp || engine == Engine::kDdp)) {
    refusals.note(
        fmt::format("microbatches: write Accelerator(gradient_accumulation_steps={}) in the script",
                    view.microbatches));
  }
  if (view.sequence_parallel && engine == Engine::kFsdp) {
    refusals.note("sequence_parallel: the model's tp_plan decides");
  }
  refusals.note_optimizer();
  refusals.note_part_of_recompute();
  const bool in_script = engine == Engine::kDdp || engine == Engine::kDeepSpeed ||
                         (engine == Engine::kFsdp && view.recompute == Recompute::kSelective);
  if (view.recompute != Recompute::kNone && in_script) {
    refusals.note(fmt::format("recompute {}: turn it on in the script", name_of(view.recompute)));
  }
  refusals.note(
      fmt::format("batch: {} samples per data-parallel rank and microbatch", view.micro_batch));
  return yaml.take();
}

}  // namespace smp::exporters
