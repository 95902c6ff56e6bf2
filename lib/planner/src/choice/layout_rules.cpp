#include "smp/planner/choice/layout_rules.h"

#include <fmt/format.h>

#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/schedule/schedule_shape.h"

namespace smp::choice {
namespace {

std::optional<std::string> schedule_problem(const LayoutChoice& choice) {
  if (choice.pipeline == 1) return std::nullopt;
  return schedule::schedule_refused(shape_of(choice));
}

}  // namespace

std::optional<std::string> virtual_stages_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t v = choice.virtual_stages;
  if (auto problem = rules::chunks_problem(choice.schedule, v)) return problem;
  const int64_t blocks = model::block_count(job.model);
  const int64_t chunks = choice.pipeline * v;
  const bool dealt = static_cast<int64_t>(job.parallel.partition.size()) == chunks;
  if (v > 1 && !dealt && choice.has_even_stages() && blocks % chunks != 0) {
    return fmt::format("{} layers are not divisible by {} stages x {} chunks = {}", blocks,
                       choice.pipeline, v, chunks);
  }
  return schedule_problem(choice);
}

std::optional<std::string> offload_problem(const JobSpec& job, const LayoutChoice& choice) {
  if (choice.offload_activations) {
    if (auto problem =
            rules::offload_activations_problem(job.parallel.framework, choice.recompute)) {
      return problem;
    }
  }
  if (choice.offload_parameters) return rules::offload_parameters_problem(choice.sharding);
  return std::nullopt;
}

std::optional<std::string> layout_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t stage_ranks = choice.tensor * choice.context * choice.data();
  if (auto problem = rules::tensor_problem(job, choice.tensor)) return problem;
  if (auto problem = rules::pipeline_problem(job, choice.tensor, choice.pipeline)) return problem;
  if (auto problem = rules::context_problem(job, choice.context)) return problem;
  if (auto problem = rules::exchange_problem(job, choice.tensor, choice.context, choice.exchange)) {
    return problem;
  }
  const mesh::Degrees degrees{.pipeline = choice.pipeline,
                              .tensor = choice.tensor,
                              .shard = choice.shard,
                              .replica = choice.replica,
                              .context = choice.context,
                              .exchange = choice.exchange};
  if (auto problem = rules::world_problem(degrees, job.cluster)) return problem;
  if (auto problem = rules::expert_problem(job, choice.expert, choice.expert_tensor, stage_ranks)) {
    return problem;
  }
  const bool shards = choice.sharding != Sharding::kNone;
  if (auto problem = rules::engine_experts_problem(
          job, choice.tensor, choice.expert, choice.expert_tensor,
          shards ? std::optional(int64_t{1} * choice.tensor * choice.context * choice.shard)
                 : std::nullopt)) {
    return problem;
  }
  if (auto problem = virtual_stages_problem(job, choice)) return problem;
  if (choice.sequence_parallel) {
    if (auto problem = rules::sequence_parallel_problem(job, choice.tensor, choice.context)) {
      return problem;
    }
  }
  if (auto problem = rules::batch_ramp_problem(job.training, choice.micro_batch, choice.data())) {
    return problem;
  }
  return offload_problem(job, choice);
}

}  // namespace smp::choice
