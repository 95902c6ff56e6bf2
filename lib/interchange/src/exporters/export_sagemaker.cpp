#include <fmt/format.h>

#include <algorithm>

#include "exporters/export_view.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

// SageMaker's dictionaries. Rules of v1: smd_model_parallel_general.rst and validate_mp_config of
// sagemaker-python-sdk 2; of v2: its reference page, and class SMP of sagemaker-python-sdk 3.
namespace smp::exporters {
namespace {

void refuse_common(const ExportView& view, Refusals& refusals) {
  refusals.no_partitioned_activations();
  refusals.offloads_checkpoints_alone();
  refusals.all_tensor_kinds();
  refusals.no_exchange();
  refusals.refuse_if(view.offload_optimizer, "offload_optimizer", "offload_activations");
  refusals.refuse_if(view.offload_parameters, "offload_parameters", "offload_activations");
}

void refuse_v1(const ExportView& view, Refusals& refusals) {
  const mesh::Degrees& degrees = view.degrees;
  const bool pipeline = degrees.pipeline > 1;
  refuse_common(view, refusals);
  refusals.no_context();
  refusals.no_experts();
  refusals.refuse_if(pipeline && static_cast<int>(view.schedule) > 1,
                     fmt::format("pipeline: {}", name_of(view.schedule)), "pipeline: interleaved");
  refusals.refuse_if(view.sharding == Sharding::kGradients, "sharding: gradients",
                     "sharding: optimizer_state or parameters");
  refusals.refuse_if(view.sharding == Sharding::kOptimizerState && degrees.replica > 1,
                     fmt::format("sharding: optimizer_state over {} of {} data-parallel ranks",
                                 degrees.shard, degrees.data()),
                     "sharding over all data-parallel ranks");
  refusals.refuse_if(
      view.sharding == Sharding::kParameters && pipeline,
      fmt::format("sharding: parameters in a pipeline of {} stages", degrees.pipeline),
      "sharding: optimizer_state, or pipeline_parallel_degree 1");
  refusals.precision_among({Precision::kFp32, Precision::kFp16, Precision::kBf16},
                           Precision::kFp16);
  refusals.refuse_if(view.precision == Precision::kBf16 && view.sharding != Sharding::kParameters,
                     "precision bf16 without sharding: parameters", "precision fp16");
  refusals.refuse_if(view.offload_activations && view.microbatches == 1,
                     "offload_activations with one microbatch", "microbatches 2");
  refusals.refuse_if(pipeline && !view.partition_is_even(),
                     "a partition of unequal stages (write smp.partition in the script)",
                     "the same number of layers in each stage, with auto_partition");
}

// "a": 1 -> a=1, for a call in Python.
std::string python_arguments(const text::OrderedJson& parameters, const std::string& margin) {
  std::string out;
  for (const auto& [key, value] : parameters.items()) {
    const std::string text =
        value.is_boolean() ? (value.get<bool>() ? "True" : "False") : value.dump();
    out += fmt::format("{}{}={},\n", margin, key, text);
  }
  return out;
}

}  // namespace

std::string write_sagemaker_v1(const ExportView& view, Refusals& refusals) {
  refuse_v1(view, refusals);
  const mesh::Degrees& degrees = view.degrees;
  text::OrderedJson parameters;
  parameters["pipeline_parallel_degree"] = degrees.pipeline;
  parameters["microbatches"] = view.microbatches;
  parameters["pipeline"] =
      view.schedule == PipelineKind::kSimple && degrees.pipeline > 1 ? "simple" : "interleaved";
  parameters["placement_strategy"] = view.parallel.placement_strategy;
  parameters["tensor_parallel_degree"] = degrees.tensor;
  parameters["ddp"] = degrees.tensor > 1 || degrees.data() > 1;
  if (degrees.tensor > 1) {
    parameters["prescaled_batch"] = true;
    parameters["optimize"] = view.sequence_parallel ? "memory" : "speed";
  }
  if (degrees.pipeline > 1) {
    parameters["auto_partition"] = true;
    parameters["active_microbatches"] =
        view.parallel.active_microbatches.value_or(degrees.pipeline + 2);
    refusals.note("partition: SMP chooses the partition at the first step (auto_partition)");
  }
  parameters["shard_optimizer_state"] = view.sharding == Sharding::kOptimizerState;
  if (view.sharding == Sharding::kParameters) {
    parameters["sharded_data_parallel_degree"] = degrees.shard;
    parameters["sdp_reduce_bucket_size"] =
        std::max<int64_t>(view.parallel.bucket_bytes.value_or(kBucketBytes) / 4, 1);  // of fp32
    if (view.parallel.max_live_parameters > 0) {
      parameters["sdp_max_live_parameters"] = view.parallel.max_live_parameters;
    }
    // 0 too: left out it is 1,000,000 there.
    parameters["sdp_param_persistence_threshold"] = view.parallel.param_persistence_threshold;
    parameters["sdp_gradient_clipping"] = view.training.optimizer.gradient_clipping;
  }
  if (view.precision == Precision::kFp16) parameters["fp16"] = true;
  if (view.precision == Precision::kBf16) parameters["bf16"] = true;
  if (view.parallel.delayed_parameter_initialization.value_or(false)) {
    parameters["delayed_parameter_initialization"] = true;
  }
  if (view.offload_activations) {
    const int64_t layers = (view.model.num_layers + degrees.pipeline - 1) / degrees.pipeline;
    parameters["offload_activations"] = true;
    parameters["activation_loading_horizon"] =
        (view.parallel.activation_loading_horizon + layers - 1) / layers;
  }
  if (view.recompute != Recompute::kNone) {
    const std::string& strategy = view.parallel.activation_checkpointing_strategy;
    refusals.note(
        fmt::format("recompute {}: turn it on in the script (smp.set_activation_checkpointing{})",
                    name_of(view.recompute),
                    strategy == "each" ? "" : fmt::format(", strategy=\"{}\"", strategy)));
  }
  if (view.parallel.recompute_layers) {
    refusals.note(fmt::format("recompute_layers {}: choose the recomputed layers in the script",
                              *view.parallel.recompute_layers));
  }
  refusals.note_optimizer();
  refusals.note(
      fmt::format("estimator: instance_count={}; set the batch in the script: {} samples per "
                  "data-parallel rank in {} microbatches",
                  view.hosts, view.micro_batch * view.microbatches, view.microbatches));
  text::OrderedJson out;
  out["smdistributed"]["modelparallel"] = {{"enabled", true}, {"parameters", parameters}};
  out["mpi"] = {{"enabled", true}, {"processes_per_host", view.processes_per_host}};
  return out.dump(2) + "\n";
}

std::string write_sagemaker_v2(const ExportView& view, Refusals& refusals, bool sdk3) {
  const mesh::Degrees& degrees = view.degrees;
  refuse_common(view, refusals);
  refusals.refuse_if(degrees.pipeline > 1,
                     fmt::format("pipeline_parallel_degree {}", degrees.pipeline),
                     "pipeline_parallel_degree 1, or the target sagemaker-v1");
  const bool partly =
      view.sharding == Sharding::kOptimizerState || view.sharding == Sharding::kGradients;
  refusals.refuse_if(partly, fmt::format("sharding: {}", name_of(view.sharding)),
                     "sharding: parameters");
  refusals.refuse_if(
      view.sharding == Sharding::kNone && degrees.context > 1,
      fmt::format(
          "context_parallel_degree {} without sharding (the degree is at most hybrid_shard_degree)",
          degrees.context),
      "sharding: parameters");
  refusals.refuse_if(view.precision == Precision::kFp64, "precision fp64", "precision fp32");
  text::OrderedJson parameters;
  parameters["hybrid_shard_degree"] =
      view.sharding == Sharding::kNone ? 1 : degrees.shard * degrees.context;
  parameters["tensor_parallel_degree"] = degrees.tensor;
  if (degrees.context > 1) parameters["context_parallel_degree"] = degrees.context;
  if (degrees.expert > 1) parameters["expert_parallel_degree"] = degrees.expert;
  parameters["sm_activation_offloading"] = view.offload_activations;
  parameters["activation_loading_horizon"] = view.parallel.activation_loading_horizon;
  parameters["random_seed"] = view.training.seed;
  refusals.note_order("DT", "SMP v2 supports no other order");
  refusals.note_optimizer();
  refusals.note_part_of_recompute();
  if (view.model.num_experts > 0) {
    refusals.note(
        fmt::format("expert_tensor_degree {}: SMP v2 splits experts by tensor_parallel_degree",
                    degrees.expert_tensor));
  }
  if (view.sequence_parallel) refusals.note("sequence_parallel: the script's model decides");
  refusals.note(fmt::format(
      "set in the script: precision {}, {}, and {} samples per data-parallel rank and microbatch",
      name_of(view.precision),
      view.recompute == Recompute::kNone
          ? "no activation checkpointing"
          : fmt::format("activation checkpointing ({})", name_of(view.recompute)),
      view.micro_batch));
  refusals.note(fmt::format("{}={}",
                            sdk3 ? "compute: Compute(instance_count" : "estimator: instance_count",
                            view.hosts) +
                (sdk3 ? ")" : ""));
  if (sdk3) {
    return fmt::format(
        "from sagemaker.train.distributed import SMP, Torchrun\n\n"
        "distributed = Torchrun(\n    process_count_per_node={},\n    smp=SMP(\n{}    "
        "),\n)\n",
        view.processes_per_host, python_arguments(parameters, "        "));
  }
  text::OrderedJson out;
  out["torch_distributed"] = {{"enabled", true}};
  out["smdistributed"]["modelparallel"] = {{"enabled", true}, {"parameters", parameters}};
  return out.dump(2) + "\n";
}

}  // namespace smp::exporters
