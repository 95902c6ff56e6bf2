#include "smp/planner/choice/layout_rules.h"

#include <fmt/format.h>

#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/choice/legality.h"

namespace smp::choice {
namespace {

std::optional<std::string> world_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t world = rules::world_size(job.cluster);
  if (choice.world() == world) return std::nullopt;
  return fmt::format(
      "pipeline {} x tensor {} x context {} x shard {} x replica {} = {}, not the world size ({})",
      choice.pipeline, choice.tensor, choice.context, choice.shard, choice.replica, choice.world(),
      world);
}

std::optional<std::string> schedule_problem(const LayoutChoice& choice) {
  if (choice.pipeline == 1) return std::nullopt;
  return schedule::schedule_refused(shape_of(choice));
}

}  // namespace

std::optional<std::string> virtual_stages_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t v = choice.virtual_stages;
  if (rules::chunks_of_schedule(choice.schedule).value_or(v) != v) {
    if (choice.schedule == PipelineKind::kZbV) {
      return fmt::format("zb_v holds 2 chunks on each rank, not {}", v);
    }
    return fmt::format("pipeline {} holds one chunk on each rank, not {}", name_of(choice.schedule),
                       v);
  }
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
  const Profile profile = job.parallel.profile.value_or(Profile::kSmp);
  if (choice.offload_activations && !rules::can_offload_activations(profile, choice.recompute)) {
    return fmt::format(
        "offload_activations with profile {} needs recompute: full, but recompute is {}",
        name_of(profile), name_of(choice.recompute));
  }
  if (choice.offload_parameters && !rules::can_offload_parameters(choice.sharding)) {
    return fmt::format("offload_parameters needs sharding: parameters, but sharding is {}",
                       name_of(choice.sharding));
  }
  return std::nullopt;
}

std::optional<std::string> layout_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t stage_ranks = choice.tensor * choice.context * choice.data();
  if (auto problem = rules::tensor_problem(job, choice.tensor)) return problem;
  if (auto problem = rules::pipeline_problem(job, choice.tensor, choice.pipeline)) return problem;
  if (auto problem = rules::context_problem(job, choice.context)) return problem;
  if (auto problem = world_problem(job, choice)) return problem;
  if (auto problem = rules::expert_problem(job, choice.expert, choice.expert_tensor, stage_ranks)) {
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
