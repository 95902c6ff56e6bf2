#include <fmt/format.h>

#include <algorithm>

#include "jobfile/job_builder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework.h"
#include "smp/plan/jobfile/forbid.h"
#include "smp/plan/layout/partition.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/spec/checkpoint_strategy.h"
#include "smp/plan/spec/recompute_modules.h"
#include "spec/choices.h"

// What the keys of parallel must say together, and what some of them mean for others. A check is
// silent when a key that it looks at is wrong by itself.
namespace smp::jobfile {

void JobBuilder::agree_on_sharding() {
  ParallelSpec& parallel = spec_.parallel;
  constexpr std::string_view kFlag = "parallel.shard_optimizer_state";
  constexpr std::string_view kDegree = "parallel.sharded_data_parallel_degree";
  constexpr std::string_view kSharding = "parallel.sharding";
  if (!usable({kFlag, kDegree, kSharding})) return;

  const bool flag = parallel.shard_optimizer_state.value_or(false);
  const std::optional<int64_t> degree = parallel.sharded_data_parallel_degree;
  if (!parallel.sharding) {
    if (flag) {
      parallel.sharding = Sharding::kOptimizerState;
    } else if (parallel.offload_parameters == true) {
      parallel.sharding = Sharding::kParameters;
    } else if (degree) {
      parallel.sharding = *degree > 1 ? Sharding::kParameters : Sharding::kNone;
    } else {
      return;
    }
  }
  const Sharding sharding = *parallel.sharding;
  if (flag && sharding != Sharding::kOptimizerState) {
    error({kSharding}, fmt::format("keys disagree: shard_optimizer_state: true means sharding: "
                                   "optimizer_state, but sharding is {}",
                                   choice_name(sharding)));
  }
  const int64_t world = rules::world_size(spec_.cluster);
  const int64_t model_ranks = parallel.pipeline_parallel_degree.value_or(1) *
                              parallel.tensor_parallel_degree.value_or(1) *
                              parallel.context_parallel_degree.value_or(1);
  const bool data_degree_known = parallel.pipeline_parallel_degree &&
                                 parallel.tensor_parallel_degree && world % model_ranks == 0;
  const int64_t data = world / model_ranks;
  // false beside optimizer_state says: not over all data-parallel ranks.
  const bool over_fewer = data_degree_known && degree && *degree < data;
  if (parallel.shard_optimizer_state == false && sharding == Sharding::kOptimizerState &&
      !over_fewer) {
    error({kSharding},
          "keys disagree: sharding is optimizer_state, but shard_optimizer_state is false");
  }
  if (!degree) return;
  if (flag && data_degree_known) {
    if (const auto problem = rules::shards_over_all_problem({data}, *degree)) {
      error({kDegree}, *problem);
      return;
    }
  }
  const bool has_peers = model_ranks != world;  // else d = 1: z is 1, whatever sharding says
  if (const auto problem = rules::sharding_problem(sharding, *degree, has_peers)) {
    error({kSharding, kFlag}, *problem);
  }
}

bool JobBuilder::check_strategy() {
  constexpr std::string_view kStrategy = "parallel.activation_checkpointing_strategy";
  if (!usable({kStrategy})) return false;
  const std::string& strategy = spec_.parallel.activation_checkpointing_strategy;
  const std::optional<int64_t> layers = layers_per_checkpoint(strategy);
  if (!layers) {
    error({kStrategy}, fmt::format("activation_checkpointing_strategy ({}) must be each, "
                                   "contiguous or group_N with N of 1 or more",
                                   strategy));
  }
  return layers.value_or(1) > 1;
}

void JobBuilder::agree_on_recompute() {
  ParallelSpec& parallel = spec_.parallel;
  constexpr std::string_view kFlag = "parallel.activation_checkpointing";
  constexpr std::string_view kRecompute = "parallel.recompute";
  if (!usable({kFlag, kRecompute})) return;
  std::optional<bool>& flag = parallel.activation_checkpointing;
  if (flag && parallel.recompute && *flag != (*parallel.recompute == Recompute::kFull)) {
    error(
        {kRecompute},
        fmt::format("keys disagree: activation_checkpointing: {} means recompute: {}, but "
                    "recompute is {}",
                    *flag, *flag ? "full" : "none or selective", choice_name(*parallel.recompute)));
    return;
  }
  const bool shares = check_strategy();
  if (!flag && !parallel.recompute && (parallel.recompute_layers || shares)) {
    parallel.recompute = Recompute::kFull;
  }
  if (flag && !parallel.recompute) {
    parallel.recompute = *flag ? Recompute::kFull : Recompute::kNone;
  }
  if (!flag && parallel.recompute) flag = *parallel.recompute == Recompute::kFull;
  if (parallel.recompute_layers && parallel.recompute && *parallel.recompute != Recompute::kFull) {
    error({"parallel.recompute_layers"},
          fmt::format("recompute_layers ({}) needs recompute: full, and recompute is {}",
                      *parallel.recompute_layers, choice_name(*parallel.recompute)));
  }
  if (shares && parallel.recompute != Recompute::kFull) {
    error(
        {"parallel.activation_checkpointing_strategy"},
        fmt::format("activation_checkpointing_strategy: {} needs recompute: full, and recompute "
                    "is {}",
                    parallel.activation_checkpointing_strategy, choice_name(*parallel.recompute)));
  }
  check_recompute_modules();
  // Our engine moves what a block keeps, whatever that is.
  if (parallel.offload_activations == true && parallel.recompute) {
    const auto problem =
        rules::offload_activations_problem(parallel.framework, *parallel.recompute);
    if (problem) error({"parallel.offload_activations"}, *problem);
  }
  if (!parallel.partition_activations) return;
  if (flag == false) {
    error({"parallel.partition_activations"},
          "partition_activations needs recompute: full, whose saved inputs it splits");
  } else if (parallel.sequence_parallel == true) {
    error({"parallel.partition_activations"},
          "keys disagree: sequence_parallel already splits the inputs that partition_activations "
          "splits: leave one of them out");
  }
}

void JobBuilder::check_recompute_modules() {
  constexpr std::string_view kModules = "parallel.recompute_modules";
  const ParallelSpec& parallel = spec_.parallel;
  const TrainingSpec& training = spec_.training;
  const std::vector<std::string>& modules = parallel.recompute_modules;
  if (modules.empty() || !usable({kModules, "parallel.framework"})) return;
  std::string problem = problem_of_recompute_modules(modules, spec_.model);
  const auto& habits = parallel.framework.habits;  // none: not known, or one of several
  if (problem.empty() && habits && !habits->offers.recompute_modules) {
    problem = fmt::format("framework {} has no such list", parallel.framework.name);
  }
  // transformer_config.py
  if (problem.empty() && training.precision == Precision::kFp8 &&
      training.fp8_recipe == Fp8Recipe::kDelayed && usable({"training.fp8_recipe"})) {
    for (const char* module : {"layernorm", "moe_act"}) {
      if (std::find(modules.begin(), modules.end(), module) == modules.end()) continue;
      problem = fmt::format(
          "Megatron refuses '{}' with precision: fp8 and fp8_recipe: delayed: take another recipe",
          module);
      break;
    }
  }
  if (!problem.empty()) error({kModules}, fmt::format("recompute_modules: {}", problem));
}

void JobBuilder::agree_on_pipeline() {
  ParallelSpec& parallel = spec_.parallel;
  constexpr std::string_view kPipeline = "parallel.pipeline";
  constexpr std::string_view kVirtual = "parallel.virtual_pipeline_degree";
  if (!usable({kPipeline, kVirtual})) return;
  const std::optional<int64_t>& chunks = parallel.virtual_pipeline_degree;
  if (!parallel.pipeline && chunks.value_or(1) > 1) parallel.pipeline = PipelineKind::kVirtual;
  if (!parallel.pipeline || !chunks) return;
  const PipelineKind kind = *parallel.pipeline;
  if (kind == PipelineKind::kVirtual) {
    const int64_t layers = spec_.model.num_layers + spec_.model.decoder_layers;
    const int64_t stages = parallel.pipeline_parallel_degree.value_or(1);
    if (usable({"model.num_layers", "parallel.pipeline_parallel_degree"})) {
      const auto problem = layout::stage_chunks_problem(layers / stages, *chunks);
      if (problem) error({kVirtual}, *problem);
    }
    if (*chunks > 1) return;
    error({kVirtual},
          "pipeline: virtual needs virtual_pipeline_degree above 1; for degree 1 write pipeline: "
          "interleaved");
    return;
  }
  if (const auto problem = rules::chunks_problem(kind, *chunks)) error({kVirtual}, *problem);
}

void JobBuilder::check_sequence_axes() {
  const ParallelSpec& parallel = spec_.parallel;
  const bool sequence_known = usable({"training.sequence_length", "model.max_positions"});
  const int64_t context = parallel.context_parallel_degree.value_or(1);
  const std::optional<int64_t>& tensor = parallel.tensor_parallel_degree;
  if (const auto problem = rules::context_slices_problem(spec_, context);
      problem && sequence_known) {
    error({"parallel.context_parallel_degree"}, *problem);
  } else if (const int64_t exchange = parallel.context_exchange_degree.value_or(1);
             context > 1 && (tensor || context % exchange != 0) &&
             rules::exchange_problem(spec_, tensor.value_or(1), context, exchange)) {
    error({"parallel.context_exchange_degree"},
          *rules::exchange_problem(spec_, tensor.value_or(1), context, exchange));
  } else if (parallel.sequence_parallel == true && tensor && (sequence_known || *tensor == 1)) {
    const auto uneven = rules::sequence_parallel_problem(spec_, *tensor, context);
    if (uneven) error({"parallel.sequence_parallel"}, *uneven);
  }
}

void JobBuilder::check_experts() {
  const ParallelSpec& parallel = spec_.parallel;
  const int64_t experts = spec_.model.num_experts;
  if (experts == 0 || !usable({"model.num_experts", "parallel.expert_parallel_degree"})) return;
  const int64_t degree = parallel.expert_parallel_degree.value_or(1);
  if (const auto problem = rules::experts_problem(spec_.model, degree)) {
    error({"parallel.expert_parallel_degree"}, *problem);
  }
}

void JobBuilder::check_partition_method() {
  constexpr std::string_view kMethod = "parallel.partition_method";
  if (!usable({kMethod})) return;
  const layout::PartitionReading reading =
      layout::read_partition_method(spec_.parallel.partition_method);
  if (!reading.problem.empty()) {
    error({kMethod}, fmt::format("partition_method {}", reading.problem));
    return;
  }
  if (reading.method != layout::PartitionMethod::kUnsaid && !spec_.parallel.partition.empty()) {
    error({kMethod},
          "keys disagree: partition and partition_method both divide the layers among the stages: "
          "write one of them");
    return;
  }
  // The patterns of a model that is wrong itself are not tried.
  if (reading.method != layout::PartitionMethod::kType || diagnostics_.any()) return;
  try {
    layout::type_weights(spec_.model, reading.pattern);
  } catch (const ConfigError& problem) {
    error({kMethod}, problem.what());
  }
}

void JobBuilder::check_partition() {
  const ParallelSpec& parallel = spec_.parallel;
  if (parallel.partition.empty() || !usable({"parallel.partition"})) return;
  const auto entries = static_cast<int64_t>(parallel.partition.size());
  const int64_t stages = parallel.pipeline_parallel_degree.value_or(entries);
  if (usable({"parallel.pipeline_parallel_degree", "parallel.virtual_pipeline_degree"})) {
    const auto problem = rules::partition_problem(parallel, stages);
    if (problem) error({"parallel.partition"}, *problem);
  }
  if (const auto item = layout::chunk_without_layers(parallel.partition, spec_.model)) {
    error({"parallel.partition"},
          fmt::format("partition item {} is 0: {}", *item + 1,
                      model::is_list(spec_.model)
                          ? "each stage of a list of layers needs one"
                          : "only the first stage, which has the embedding, and the last, which "
                            "has the head, can be without layers"));
  }
  if (usable({"model.num_layers", "model.decoder_layers"})) {
    const bool both = spec_.model.stack == Stack::kEncoderDecoder;
    const auto problem =
        layout::partition_sum_problem(parallel.partition, model::block_count(spec_.model),
                                      both ? "num_layers + decoder_layers" : "num_layers");
    if (problem) error({"parallel.partition"}, *problem);
  }
}

void JobBuilder::check_forbidden() {
  if (!usable({"parallel.forbid"})) return;
  for (size_t i = 0; i < spec_.parallel.forbid.size(); ++i) {
    const ForbidReading reading = read_forbid(spec_.parallel.forbid[i]);
    if (reading.problem.empty()) continue;
    error({"parallel.forbid"}, fmt::format("forbid item {} {}", i + 1, reading.problem));
  }
}

void JobBuilder::check_parallel() {
  const ParallelSpec& parallel = spec_.parallel;
  const int64_t tensor = parallel.tensor_parallel_degree.value_or(1);
  if (const auto problem = rules::prescaled_batch_problem(spec_, tensor)) {
    error({"parallel.prescaled_batch"}, *problem);
  }
  const TensorKinds& kinds = parallel.tensor_parallel;
  if (tensor > 1 && !kinds.attention && !kinds.mlp && !kinds.embedding) {
    error({"parallel.tensor_parallel.attention"},
          fmt::format("tensor_parallel shares nothing among the {} ranks of a tensor group: leave "
                      "attention, mlp or embedding true, or write tensor_parallel_degree: 1",
                      tensor));
  }
  if (parallel.offload_parameters == true && usable({"parallel.sharding"}) && parallel.sharding) {
    const auto problem = rules::offload_parameters_problem(*parallel.sharding);
    if (problem) error({"parallel.offload_parameters"}, *problem);
  }
  check_sequence_axes();
  check_experts();
  check_partition_method();
  check_partition();
  check_forbidden();
}

}  // namespace smp::jobfile
