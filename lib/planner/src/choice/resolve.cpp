#include "choice/resolve.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/schedule/schedule_shape.h"

// Layouts as plain numbers, and as the keys of a plan.
namespace smp::choice {
namespace {

std::vector<int64_t> partition_of(const LayoutChoice& choice, int64_t blocks) {
  if (!choice.partition.empty()) return choice.partition.blocks();
  std::vector<int64_t> partition;
  for (int64_t stage = 0; stage < choice.pipeline; ++stage) {
    partition.push_back(stage_layers(choice, blocks, stage));
  }
  return partition;
}

// Sets what a choice says of uneven stages: in numbers where they can, else as a list.
void set_partition(const std::vector<int64_t>& partition, int64_t blocks, LayoutChoice& choice) {
  if (partition.empty() || partition == partition_of(choice, blocks)) return;
  LayoutChoice uneven = choice;
  // Fewer words first: one end, the other, both.
  for (const auto& [first, last] : {std::pair{true, false}, {false, true}, {true, true}}) {
    uneven.first_stage_layers = first ? static_cast<int32_t>(partition.front()) : 0;
    uneven.last_stage_layers = last ? static_cast<int32_t>(partition.back()) : 0;
    if (partition != partition_of(uneven, blocks)) continue;
    choice = uneven;
    return;
  }
  choice.partition = BlockPartition(partition);
}

template <class T>
int32_t narrowed(const std::optional<T>& value) {
  SMP_CHECK(value.has_value());
  return static_cast<int32_t>(*value);
}

}  // namespace

Plan resolve(const JobSpec& job, const LayoutChoice& choice) {
  Plan plan;
  plan.job = job;
  TrainingSpec& training = plan.job.training;
  training.precision = choice.precision;
  training.micro_batch = choice.micro_batch;
  training.microbatches = choice.microbatches;
  training.global_batch = int64_t{choice.micro_batch} * choice.microbatches * choice.data();

  ParallelSpec& parallel = plan.job.parallel;
  parallel.pipeline_parallel_degree = choice.pipeline;
  parallel.tensor_parallel_degree = choice.tensor;
  parallel.context_parallel_degree = choice.context;
  parallel.context_exchange_degree = choice.exchange;
  if (job.model.num_experts > 0) {
    parallel.expert_parallel_degree = choice.expert;
    parallel.expert_tensor_degree = choice.expert_tensor;
  }
  parallel.sharded_data_parallel_degree = choice.shard;
  parallel.sharding = choice.sharding;
  parallel.shard_optimizer_state =
      choice.sharding == Sharding::kOptimizerState && choice.replica == 1;
  parallel.pipeline = choice.schedule;
  parallel.virtual_pipeline_degree = choice.virtual_stages;
  parallel.sequence_parallel = choice.sequence_parallel;
  parallel.recompute = choice.recompute;
  parallel.activation_checkpointing = choice.recompute == Recompute::kFull;
  parallel.recompute_layers.reset();
  if (choice.recompute_layers >= 0) parallel.recompute_layers = choice.recompute_layers;
  parallel.offload_activations = choice.offload_activations;
  parallel.offload_optimizer = choice.offload_optimizer;
  parallel.offload_parameters = choice.offload_parameters;
  parallel.active_microbatches =
      choice.active_microbatches > 0 ? choice.active_microbatches : choice.microbatches;
  parallel.partition = partition_of(choice, model::block_count(job.model));
  parallel.placement_strategy = name_of(choice.placement);
  if (!parallel.delayed_parameter_initialization) {
    parallel.delayed_parameter_initialization = engine_draws(job);
  }
  plan.degrees = rules::degrees_of(plan.job);
  return plan;
}

LayoutChoice choice_of(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  const TrainingSpec& training = plan.job.training;
  LayoutChoice choice;
  choice.pipeline = static_cast<int32_t>(plan.degrees.pipeline);
  choice.tensor = static_cast<int32_t>(plan.degrees.tensor);
  choice.context = static_cast<int32_t>(plan.degrees.context);
  choice.exchange = static_cast<int32_t>(plan.degrees.exchange);
  choice.expert = static_cast<int32_t>(plan.degrees.expert);
  choice.expert_tensor = static_cast<int32_t>(plan.degrees.expert_tensor);
  choice.shard = static_cast<int32_t>(plan.degrees.shard);
  choice.replica = static_cast<int32_t>(plan.degrees.replica);
  choice.virtual_stages = static_cast<int32_t>(layout::schedule_shape(plan).chunks());
  SMP_CHECK(parallel.pipeline && training.precision);
  choice.schedule = *parallel.pipeline;
  choice.sharding = parallel.sharding.value_or(Sharding::kNone);
  choice.precision = *training.precision;
  choice.recompute = recompute_of(plan);
  choice.recompute_layers = static_cast<int32_t>(parallel.recompute_layers.value_or(-1));
  choice.sequence_parallel = parallel.sequence_parallel.value_or(false);
  choice.offload_activations = parallel.offload_activations.value_or(false);
  choice.offload_optimizer = parallel.offload_optimizer.value_or(false);
  choice.offload_parameters = parallel.offload_parameters.value_or(false);
  choice.micro_batch = narrowed(training.micro_batch);
  choice.microbatches = narrowed(training.microbatches);
  choice.active_microbatches = static_cast<int32_t>(parallel.active_microbatches.value_or(0));
  // Of that many there is no cap.
  if (choice.active_microbatches >= choice.microbatches) choice.active_microbatches = 0;

  choice.placement = placement_strategy_of(parallel.placement_strategy);
  set_partition(parallel.partition, model::block_count(plan.job.model), choice);
  return choice;
}

Recompute recompute_of(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  return parallel.recompute.value_or(
      parallel.activation_checkpointing.value_or(false) ? Recompute::kFull : Recompute::kNone);
}

}  // namespace smp::choice
