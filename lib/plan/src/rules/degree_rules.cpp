#include "smp/plan/rules/degree_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/partition.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/spec/plan.h"

namespace smp::rules {
namespace {

// "pipeline_parallel_degree (2) x context_parallel_degree (3)": degrees of 1 are left out.
std::string model_ranks_text(int64_t pipeline, int64_t tensor, int64_t context) {
  std::string text;
  const auto add = [&](std::string_view key, int64_t degree) {
    if (degree == 1) return;
    text += fmt::format("{}{} ({})", text.empty() ? "" : " x ", key, degree);
  };
  add("pipeline_parallel_degree", pipeline);
  add("tensor_parallel_degree", tensor);
  add("context_parallel_degree", context);
  if (text.find(" x ") != std::string::npos)
    text += fmt::format(" = {}", pipeline * tensor * context);
  return text;
}

// The ranks that hold one copy of the model divide the world size.
std::optional<std::string> model_ranks_problem(const ClusterSpec& cluster, int64_t pipeline,
                                               int64_t tensor, int64_t context) {
  const int64_t world = world_size(cluster);
  const int64_t ranks = pipeline * tensor * context;
  if (ranks > 0 && world % ranks == 0) return std::nullopt;
  return fmt::format("{} does not divide the {} {} of the cluster ({} {} x {})",
                     model_ranks_text(pipeline, tensor, context), world,
                     world == 1 ? "process" : "processes", cluster.hosts,
                     cluster.hosts == 1 ? "host" : "hosts", cluster.processes_per_host);
}

std::optional<std::string> expert_ranks_problem(int64_t expert, int64_t expert_tensor,
                                                int64_t stage_ranks) {
  if (stage_ranks % (expert * expert_tensor) == 0) return std::nullopt;
  return fmt::format(
      "expert_parallel_degree ({}) x expert_tensor_degree ({}) = {} does not divide the {} {} of a "
      "stage",
      expert, expert_tensor, expert * expert_tensor, stage_ranks,
      stage_ranks == 1 ? "rank" : "ranks");
}

// Nothing = virtual_pipeline_degree says, above 1.
std::optional<int64_t> chunks_of_schedule(PipelineKind kind) {
  if (kind == PipelineKind::kVirtual) return std::nullopt;
  return kind == PipelineKind::kZbV ? 2 : 1;
}

void require(const std::optional<std::string>& problem) {
  if (problem) throw ConfigError(*problem);
}

}  // namespace

int64_t world_size(const ClusterSpec& cluster) {
  return cluster.hosts * cluster.processes_per_host;
}

mesh::Degrees degrees_of(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  SMP_CHECK(parallel.pipeline_parallel_degree && parallel.tensor_parallel_degree);
  SMP_CHECK(parallel.sharded_data_parallel_degree.has_value());
  const int64_t p = *parallel.pipeline_parallel_degree;
  const int64_t t = *parallel.tensor_parallel_degree;
  const int64_t c = parallel.context_parallel_degree.value_or(1);
  const int64_t z = *parallel.sharded_data_parallel_degree;
  require(model_ranks_problem(job.cluster, p, t, c));
  const int64_t d = world_size(job.cluster) / (p * t * c);
  require(shard_problem(d, z));
  mesh::Degrees degrees{.pipeline = p, .tensor = t, .shard = z, .replica = d / z, .context = c};
  degrees.exchange = parallel.context_exchange_degree.value_or(1);
  require(exchange_problem(job, t, c, degrees.exchange));
  if (job.model.num_experts > 0) {
    degrees.expert = parallel.expert_parallel_degree.value_or(1);
    degrees.expert_tensor =
        parallel.expert_tensor_degree.value_or(default_expert_tensor(job, degrees.expert, t));
    require(expert_ranks_problem(degrees.expert, degrees.expert_tensor, t * c * d));
    const bool shards = z > 1 || parallel.sharding.value_or(Sharding::kNone) != Sharding::kNone;
    require(engine_experts_problem(job, t, degrees.expert, degrees.expert_tensor,
                                   shards ? std::optional(t * c * z) : std::nullopt));
  }
  return degrees;
}

std::optional<std::string> engine_experts_problem(const JobSpec& job, int64_t tensor,
                                                  int64_t expert, int64_t expert_tensor,
                                                  std::optional<int64_t> shard_ranks) {
  if (!exchanges_rows(job) || expert == 1) return std::nullopt;
  if (expert_tensor != 1) {
    return fmt::format(
        "expert_tensor_degree ({}) is above 1 with expert_parallel_degree ({}): the engine gives "
        "each expert to one rank",
        expert_tensor, expert);
  }
  if (expert % tensor != 0) {
    return fmt::format(
        "expert_parallel_degree ({}) is no multiple of tensor_parallel_degree ({}): the tensor "
        "ranks, which have a part of the tokens each, share the experts too",
        expert, tensor);
  }
  if (!shard_ranks || *shard_ranks % expert == 0) return std::nullopt;
  return fmt::format(
      "expert_parallel_degree ({}) does not divide the {} ranks of a stage that share a copy of "
      "its sharded states (tensor x context x sharded_data_parallel_degree)",
      expert, *shard_ranks);
}

std::optional<std::string> tensor_problem(const JobSpec& job, int64_t tensor) {
  const int64_t processes = job.cluster.processes_per_host;
  const ModelSpec& model = job.model;
  if (auto problem = prescaled_batch_problem(job, tensor)) return problem;
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
  const bool shares_experts = job.parallel.framework.is_engine() &&
                              job.cluster.device == DeviceKind::kCpu &&
                              job.parallel.tensor_parallel.mlp;
  if (shares_experts && model.num_experts > 0 && model.num_experts < tensor) {
    return fmt::format("num_experts ({}) is below {}: tensor ranks share the experts",
                       model.num_experts, tensor);
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
  if (model::is_hybrid(model) && model.mamba_heads % tensor != 0) {
    return fmt::format("mamba_heads ({}) is not divisible by {}", model.mamba_heads, tensor);
  }
  if (model::is_hybrid(model) && model.mamba_groups % tensor != 0) {
    return fmt::format("mamba_groups ({}) is not divisible by {}", model.mamba_groups, tensor);
  }
  return std::nullopt;
}

std::optional<std::string> pipeline_problem(const JobSpec& job, int64_t tensor, int64_t pipeline) {
  const int64_t processes = job.cluster.processes_per_host;
  const int64_t product = pipeline * tensor;
  if (auto problem = layout::stages_problem(
          pipeline, model::block_count(job.model),
          job.model.decoder_layers > 0 ? "num_layers + decoder_layers" : "num_layers")) {
    return problem;
  }
  if (processes % product != 0 && product % processes != 0) {
    return fmt::format(
        "{} stages x tensor {} = {} neither divides processes_per_host ({}) nor is "
        "a multiple of it",
        pipeline, tensor, product, processes);
  }
  if (auto problem = model_ranks_problem(job.cluster, pipeline, tensor, 1)) return problem;
  return partition_problem(job.parallel, pipeline);
}

std::optional<std::string> shard_problem(int64_t data, int64_t shard) {
  if (shard > 0 && data % shard == 0) return std::nullopt;
  return fmt::format(
      "sharded_data_parallel_degree ({}) does not divide the data-parallel degree ({})", shard,
      data);
}

std::optional<std::string> context_problem(const JobSpec& job, int64_t context) {
  if (context == 1) return std::nullopt;
  if (auto problem = context_slices_problem(job, context)) return problem;
  return model_ranks_problem(job.cluster, 1, 1, context);
}

std::optional<std::string> exchange_problem(const JobSpec& job, int64_t tensor, int64_t context,
                                            int64_t exchange) {
  if (exchange == 1) return std::nullopt;
  if (context % exchange != 0) {
    return fmt::format("context_exchange_degree ({}) does not divide context_parallel_degree ({})",
                       exchange, context);
  }
  const ModelSpec& model = job.model;
  const int64_t parts = job.parallel.tensor_parallel.attention ? tensor : 1;
  const auto uneven = [&](const char* key, int64_t heads) -> std::optional<std::string> {
    const int64_t here = std::max<int64_t>(1, heads / parts);
    if (here % exchange == 0) return std::nullopt;
    return fmt::format(
        "context_exchange_degree ({}) does not divide {} ({}) / tensor ranks ({}) = "
        "{}: ranks that exchange heads take an even part of them",
        exchange, key, heads, parts, here);
  };
  if (auto problem = uneven("num_heads", model.num_heads)) return problem;
  return model.kv_lora_rank > 0 ? std::nullopt : uneven("num_kv_heads", model.num_kv_heads);
}

std::optional<std::string> expert_problem(const JobSpec& job, int64_t expert, int64_t expert_tensor,
                                          int64_t stage_ranks) {
  const ModelSpec& model = job.model;
  if (model.num_experts == 0) {
    if (expert == 1) return std::nullopt;
    return fmt::format("the model has no experts to spread over {} ranks", expert);
  }
  if (auto problem = experts_problem(model, expert)) return problem;
  if (model.expert_ffn_hidden_size % expert_tensor != 0) {
    return fmt::format("expert_ffn_hidden_size ({}) is not divisible by expert_tensor_degree {}",
                       model.expert_ffn_hidden_size, expert_tensor);
  }
  return expert_ranks_problem(expert, expert_tensor, stage_ranks);
}

std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context) {
  if (tensor == 1) {
    return "sequence_parallel: true needs tensor_parallel_degree above 1, but "
           "tensor_parallel_degree is 1";
  }
  const int64_t sequence = job.training.sequence_length;
  if (sequence / context % tensor == 0) return std::nullopt;
  return context == 1
             ? fmt::format(
                   "sequence_parallel: true needs a sequence_length ({}) that "
                   "tensor_parallel_degree ({}) divides",
                   sequence, tensor)
             : fmt::format(
                   "sequence_parallel: true needs a sequence_length ({}) / "
                   "context_parallel_degree ({}) = {} that tensor_parallel_degree ({}) divides",
                   sequence, context, sequence / context, tensor);
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

std::optional<std::string> world_problem(const mesh::Degrees& degrees, const ClusterSpec& cluster) {
  const int64_t world = world_size(cluster);
  if (degrees.world() == world) return std::nullopt;
  return fmt::format(
      "pipeline {} x tensor {} x context {} x shard {} x replica {} = {}, not the world size ({})",
      degrees.pipeline, degrees.tensor, degrees.context, degrees.shard, degrees.replica,
      degrees.world(), world);
}

std::optional<std::string> prescaled_batch_problem(const JobSpec& job, int64_t tensor) {
  if (tensor == 1 || job.parallel.prescaled_batch) return std::nullopt;
  const std::optional<int64_t>& micro = job.training.micro_batch;
  return fmt::format(
      "prescaled_batch: false counts samples of each rank, and tensor_parallel_degree is {}: write "
      "prescaled_batch: true and training.micro_batch: {}",
      tensor,
      micro ? fmt::format("{} ({} x {})", *micro * tensor, *micro, tensor)
            : fmt::format("that of a rank x {}", tensor));
}

std::optional<std::string> context_slices_problem(const JobSpec& job, int64_t context) {
  if (context == 1) return std::nullopt;
  const int64_t sequence = job.training.sequence_length;
  const bool causal = job.model.stack == Stack::kDecoder;
  const int64_t slices = causal ? 2 * context : context;
  if (sequence % slices == 0) return std::nullopt;
  return causal
             ? fmt::format(
                   "sequence_length ({}) is not divisible by 2 x context_parallel_degree ({}): "
                   "each rank takes an early and a late slice, which balances causal attention",
                   sequence, context)
             : fmt::format("sequence_length ({}) is not divisible by context_parallel_degree ({})",
                           sequence, context);
}

std::optional<std::string> experts_problem(const ModelSpec& model, int64_t expert) {
  if (model.num_experts % expert == 0) return std::nullopt;
  return fmt::format("num_experts ({}) is not divisible by expert_parallel_degree ({})",
                     model.num_experts, expert);
}

std::optional<std::string> partition_problem(const ParallelSpec& parallel, int64_t pipeline) {
  const PipelineKind kind = parallel.pipeline.value_or(PipelineKind::kVirtual);
  const std::optional<int64_t> chunks =
      kind == PipelineKind::kVirtual ? parallel.virtual_pipeline_degree : chunks_of_schedule(kind);
  return layout::partition_length_problem(parallel.partition, pipeline, chunks);
}

std::optional<std::string> chunks_problem(PipelineKind kind, int64_t chunks) {
  if (chunks_of_schedule(kind).value_or(chunks) == chunks) return std::nullopt;
  if (kind == PipelineKind::kZbV) {
    return fmt::format(
        "pipeline: zb_v holds two chunks on each rank: virtual_pipeline_degree must be 2, not {}",
        chunks);
  }
  return fmt::format(
      "keys disagree: virtual_pipeline_degree is {}, but pipeline: {} holds one chunk on each "
      "rank; write pipeline: virtual",
      chunks, name_of(kind));
}

bool agrees_on_shards(Sharding sharding, int64_t shard, bool has_peers) {
  return sharding == Sharding::kNone ? shard <= 1 : shard > 1 || !has_peers;
}

std::optional<std::string> sharding_problem(Sharding sharding, int64_t shard, bool has_peers) {
  if (agrees_on_shards(sharding, shard, has_peers)) return std::nullopt;
  return fmt::format("keys disagree: sharding is {}, but sharded_data_parallel_degree is {}",
                     name_of(sharding), shard);
}

std::optional<std::string> shards_over_all_problem(const std::vector<int64_t>& data,
                                                   int64_t shard) {
  if (data.empty() || std::find(data.begin(), data.end(), shard) != data.end()) return std::nullopt;
  return fmt::format(
      "keys disagree: shard_optimizer_state: true shards over all {} data-parallel ranks, but "
      "sharded_data_parallel_degree is {}: write sharding: optimizer_state instead of "
      "shard_optimizer_state: true",
      fmt::join(data, " or "), shard);
}

std::optional<std::string> offload_activations_problem(const FrameworkChoice& framework,
                                                       Recompute recompute) {
  if (framework.is_engine() || recompute == Recompute::kFull) return std::nullopt;
  return fmt::format(
      "offload_activations with framework {} needs recompute: full, but recompute is {}",
      framework.name, name_of(recompute));
}

std::optional<std::string> offload_parameters_problem(Sharding sharding) {
  if (sharding == Sharding::kParameters) return std::nullopt;
  return fmt::format("offload_parameters: true needs sharding: parameters, but sharding is {}",
                     name_of(sharding));
}

}  // namespace smp::rules
