#include "smp/planner/choice/layout_rules.h"

#include <fmt/format.h>

#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/choice/legality.h"

namespace smp::choice {
namespace {

std::optional<std::string> world_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t world = world_size(job.cluster);
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

std::optional<std::string> context_problem(const JobSpec& job, int64_t context) {
  if (context == 1) return std::nullopt;
  const int64_t sequence = job.training.sequence_length;
  if (job.model.stack == Stack::kDecoder && sequence % (2 * context) != 0) {
    return fmt::format(
        "sequence_length ({}) is not divisible by 2 x {}: each context rank takes an early and a "
        "late slice of causal attention",
        sequence, context);
  }
  if (sequence % context != 0) {
    return fmt::format("sequence_length ({}) is not divisible by {}", sequence, context);
  }
  if (world_size(job.cluster) % context != 0) {
    return fmt::format("the world size ({}) is not divisible by {}", world_size(job.cluster),
                       context);
  }
  return std::nullopt;
}

std::optional<std::string> expert_problem(const JobSpec& job, int64_t expert, int64_t expert_tensor,
                                          int64_t stage_ranks) {
  const ModelSpec& model = job.model;
  if (model.num_experts == 0) {
    if (expert == 1) return std::nullopt;
    return fmt::format("the model has no experts to spread over {} ranks", expert);
  }
  if (model.num_experts % expert != 0) {
    return fmt::format("num_experts ({}) is not divisible by {}", model.num_experts, expert);
  }
  if (model.expert_ffn_hidden_size % expert_tensor != 0) {
    return fmt::format("expert_ffn_hidden_size ({}) is not divisible by expert_tensor_degree {}",
                       model.expert_ffn_hidden_size, expert_tensor);
  }
  if (stage_ranks % (expert * expert_tensor) != 0) {
    return fmt::format("expert {} x expert tensor {} = {} does not divide the {} ranks of a stage",
                       expert, expert_tensor, expert * expert_tensor, stage_ranks);
  }
  return std::nullopt;
}

std::optional<std::string> virtual_stages_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t v = choice.virtual_stages;
  const bool many = choice.schedule == PipelineKind::kVirtual;
  const bool two = choice.schedule == PipelineKind::kZbV;
  if (two && v != 2) return fmt::format("zb_v holds 2 chunks on each rank, not {}", v);
  if (!many && !two && v != 1) {
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

std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context) {
  if (tensor == 1)
    return "sequence parallelism splits what tensor parallelism leaves whole: tensor is 1";
  const int64_t tokens = job.training.sequence_length / context;
  if (tokens % tensor == 0) return std::nullopt;
  return context == 1
             ? fmt::format("sequence_length ({}) is not divisible by tensor {}", tokens, tensor)
             : fmt::format("sequence_length {} / context {} = {} is not divisible by tensor {}",
                           job.training.sequence_length, context, tokens, tensor);
}

std::optional<std::string> batch_ramp_problem(const TrainingSpec& training, int64_t micro_batch,
                                              int64_t data) {
  if (training.batch_ramp_start == 0) return std::nullopt;
  const int64_t step = micro_batch * data;
  if (training.batch_ramp_start % step != 0) {
    return fmt::format("batch_ramp_start ({}) is not divisible by micro_batch {} x data {} = {}",
                       training.batch_ramp_start, micro_batch, data, step);
  }
  if (training.batch_ramp_increment % step != 0) {
    return fmt::format(
        "batch_ramp_increment ({}) is not divisible by micro_batch {} x data {} = {}",
        training.batch_ramp_increment, micro_batch, data, step);
  }
  return std::nullopt;
}

std::optional<std::string> offload_problem(const JobSpec& job, const LayoutChoice& choice) {
  const Profile profile = job.parallel.profile.value_or(Profile::kSmp);
  if (choice.offload_activations && choice.recompute != Recompute::kFull &&
      profile != Profile::kSmp) {
    return fmt::format(
        "offloading of profile {} moves what recompute full keeps, and recompute is "
        "{}",
        name_of(profile), name_of(choice.recompute));
  }
  if (choice.offload_parameters && choice.sharding != Sharding::kParameters) {
    return fmt::format("parameters are offloaded by shards: sharding is {}, not parameters",
                       name_of(choice.sharding));
  }
  return std::nullopt;
}

std::optional<std::string> layout_problem(const JobSpec& job, const LayoutChoice& choice) {
  const int64_t stage_ranks = choice.tensor * choice.context * choice.data();
  if (auto problem = tensor_problem(job, choice.tensor)) return problem;
  if (auto problem = pipeline_problem(job, choice.tensor, choice.pipeline)) return problem;
  if (auto problem = context_problem(job, choice.context)) return problem;
  if (auto problem = world_problem(job, choice)) return problem;
  if (auto problem = expert_problem(job, choice.expert, choice.expert_tensor, stage_ranks)) {
    return problem;
  }
  if (auto problem = virtual_stages_problem(job, choice)) return problem;
  if (choice.sequence_parallel) {
    if (auto problem = sequence_parallel_problem(job, choice.tensor, choice.context)) {
      return problem;
    }
  }
  if (auto problem = batch_ramp_problem(job.training, choice.micro_batch, choice.data())) {
    return problem;
  }
  return offload_problem(job, choice);
}

}  // namespace smp::choice
