#include "smp/plan/rules/degree_rules.h"

#include <fmt/format.h>

#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::rules {
namespace {

// Whether parallel.partition has a number for each stage, or for each chunk of a schedule that
// is open.
bool names_stages_or_chunks(const JobSpec& job, int64_t pipeline) {
  const ParallelSpec& parallel = job.parallel;
  const auto entries = static_cast<int64_t>(parallel.partition.size());
  if (entries == pipeline) return true;
  if (entries % pipeline != 0) return false;
  const int64_t chunks = entries / pipeline;
  switch (parallel.pipeline.value_or(PipelineKind::kVirtual)) {
    case PipelineKind::kVirtual: return parallel.virtual_pipeline_degree.value_or(chunks) == chunks;
    case PipelineKind::kZbV: return chunks == 2;
    default: return false;
  }
}

}  // namespace

int64_t world_size(const ClusterSpec& cluster) {
  return cluster.hosts * cluster.processes_per_host;
}

std::optional<std::string> tensor_problem(const JobSpec& job, int64_t tensor) {
  const int64_t processes = job.cluster.processes_per_host;
  const ModelSpec& model = job.model;
  if (!counts_batch_of_group(job.parallel, tensor)) {
    return fmt::format(
        "prescaled_batch: false counts samples of each rank: write prescaled_batch: true and "
        "training.micro_batch: that of a rank x {}",
        tensor);
  }
  if (processes % tensor != 0) {
    return fmt::format("processes_per_host ({}) is not divisible by {}", processes, tensor);
  }
  if (model::is_list(model)) {
    for (const model::PlacedOperator& matrix : model::matrices_of(model)) {
      if (matrix.matrix_cut == model::MatrixCut::kInputs || matrix.spec.out >= tensor) continue;
      return fmt::format("model.layers[{}] ({}) has {} outputs, fewer than {}", matrix.index,
                         model::rules_of(matrix.spec.kind).type, matrix.spec.out, tensor);
    }
    return std::nullopt;
  }
  if (!job.parallel.tensor_parallel.attention) return std::nullopt;
  if (model.num_heads % tensor != 0) {
    return fmt::format("num_heads ({}) is not divisible by {}", model.num_heads, tensor);
  }
  const bool has_kv_heads = model.kv_lora_rank == 0;
  if (has_kv_heads && model.num_kv_heads % tensor != 0 && tensor % model.num_kv_heads != 0) {
    return fmt::format("num_kv_heads ({}) is neither a multiple nor a divisor of {}",
                       model.num_kv_heads, tensor);
  }
  return std::nullopt;
}

std::optional<std::string> pipeline_problem(const JobSpec& job, int64_t tensor, int64_t pipeline) {
  const int64_t processes = job.cluster.processes_per_host;
  const int64_t product = pipeline * tensor;
  if (pipeline > model::block_count(job.model)) {
    return fmt::format("the pipeline has more stages than num_layers{} ({})",
                       job.model.decoder_layers > 0 ? " + decoder_layers" : "",
                       model::block_count(job.model));
  }
  if (processes % product != 0 && product % processes != 0) {
    return fmt::format(
        "{} stages x tensor {} = {} neither divides processes_per_host ({}) nor is "
        "a multiple of it",
        pipeline, tensor, product, processes);
  }
  if (world_size(job.cluster) % product != 0) {
    return fmt::format("{} stages x tensor {} = {} does not divide the world size ({})", pipeline,
                       tensor, product, world_size(job.cluster));
  }
  const auto& partition = job.parallel.partition;
  if (!partition.empty() && !names_stages_or_chunks(job, pipeline)) {
    return fmt::format("parallel.partition has {} entries", partition.size());
  }
  return std::nullopt;
}

std::optional<std::string> shard_problem(int64_t data, int64_t shard) {
  if (data % shard == 0) return std::nullopt;
  return fmt::format("the data-parallel degree ({}) is not divisible by {}", data, shard);
}

std::optional<std::string> context_problem(const JobSpec& job, int64_t context) {
  if (context == 1) return std::nullopt;
  const int64_t sequence = job.training.sequence_length;
  const int64_t slices = context_slices(job.model, context);
  if (slices != context && sequence % slices != 0) {
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
  if (!divides_experts(model, expert)) {
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

std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context) {
  if (tensor == 1) return "sequence parallelism needs a tensor degree above 1";
  const int64_t tokens = job.training.sequence_length / context;
  if (divides_tokens(tokens, tensor)) return std::nullopt;
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

int64_t context_slices(const ModelSpec& model, int64_t context) {
  return model.stack == Stack::kDecoder ? 2 * context : context;
}

bool divides_experts(const ModelSpec& model, int64_t expert) {
  return model.num_experts % expert == 0;
}

bool divides_tokens(int64_t tokens, int64_t tensor) { return tokens % tensor == 0; }

std::optional<int64_t> chunks_of_schedule(PipelineKind kind) {
  if (kind == PipelineKind::kVirtual) return std::nullopt;
  return kind == PipelineKind::kZbV ? 2 : 1;
}

bool counts_batch_of_group(const ParallelSpec& parallel, int64_t tensor) {
  return tensor == 1 || parallel.prescaled_batch;
}

bool can_offload_activations(Profile profile, Recompute recompute) {
  return profile == Profile::kSmp || recompute == Recompute::kFull;
}

bool can_offload_parameters(Sharding sharding) { return sharding == Sharding::kParameters; }

}  // namespace smp::rules
