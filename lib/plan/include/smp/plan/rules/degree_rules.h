#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"

// The rules for degrees and settings of a layout, one function a rule. The job reader checks the
// keys of a file with them; the planner checks every layout that it tries, and every plan that it
// proves. A problem is the equation that failed; nothing = legal. Pure; any thread.
//   tensor: t divides processes_per_host and the heads, and divides the KV heads or is a multiple
//     of them; above 1 the batch is the tensor group's (prescaled_batch)
//   pipeline: p is at most the layers; p*t divides processes_per_host or is a multiple of it, and
//     divides the world size; a partition has a number for each stage or each chunk
//   shard: z divides the data-parallel degree d = world / (p*t*c)
//   context: c divides the sequence; in a decoder 2c does, so that each rank takes an early and a
//     late slice of causal attention (Megatron-LM); c divides the world size
//   experts: e divides the experts, et the width of one, e*et the ranks t*c*d of a stage; in our
//     engine on CPUs with e > 1: t divides e, et = 1, and e divides the t*c*z ranks that share a
//     copy of sharded states
//   sequence parallelism: t > 1 divides the tokens that a rank keeps of a sequence
//   batch ramp: every batch of the ramp is a multiple of micro_batch x d
namespace smp::rules {

int64_t world_size(const ClusterSpec& cluster);

// Degrees of a resolved job. Throws ConfigError when they do not fill the cluster.
mesh::Degrees degrees_of(const JobSpec& job);

std::optional<std::string> tensor_problem(const JobSpec& job, int64_t tensor);
std::optional<std::string> pipeline_problem(const JobSpec& job, int64_t tensor, int64_t pipeline);
std::optional<std::string> shard_problem(int64_t data, int64_t shard);
std::optional<std::string> context_problem(const JobSpec& job, int64_t context);
std::optional<std::string> exchange_problem(const JobSpec& job, int64_t tensor, int64_t context,
                                            int64_t exchange);
std::optional<std::string> expert_problem(const JobSpec& job, int64_t expert, int64_t expert_tensor,
                                          int64_t stage_ranks);
// Of our engine on CPUs, where e > 1. `shard_ranks`: t*c*z where states are sharded, else nothing.
std::optional<std::string> engine_experts_problem(const JobSpec& job, int64_t tensor,
                                                  int64_t expert, int64_t expert_tensor,
                                                  std::optional<int64_t> shard_ranks);
std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context);
std::optional<std::string> batch_ramp_problem(const TrainingSpec& training, int64_t micro_batch,
                                              int64_t data);

// The product of a layout's degrees is the world size.
std::optional<std::string> world_problem(const mesh::Degrees& degrees, const ClusterSpec& cluster);

// Rules of one or two keys, which the functions above share with the job reader.

// Above one tensor rank, a microbatch must be the tensor group's.
std::optional<std::string> prescaled_batch_problem(const JobSpec& job, int64_t tensor);
// The slices that context parallelism cuts a sequence in, two of each rank in a decoder, are equal.
std::optional<std::string> context_slices_problem(const JobSpec& job, int64_t context);
std::optional<std::string> experts_problem(const ModelSpec& model, int64_t expert);
// parallel.partition has a number for each stage or chunk; an open schedule has any chunks.
std::optional<std::string> partition_problem(const ParallelSpec& parallel, int64_t pipeline);
// Chunks of the schedule on each rank: 2 for zb_v, virtual_pipeline_degree for virtual, else 1.
std::optional<std::string> chunks_problem(PipelineKind kind, int64_t chunks);
// `sharding` and sharded_data_parallel_degree agree: none needs degree 1; the others need a degree
// above 1 where a rank has data-parallel peers.
bool agrees_on_shards(Sharding sharding, int64_t shard, bool has_peers);
std::optional<std::string> sharding_problem(Sharding sharding, int64_t shard, bool has_peers);
// shard_optimizer_state: true shards over all data-parallel ranks. `data`: the data-parallel
// degrees that are still possible.
std::optional<std::string> shards_over_all_problem(const std::vector<int64_t>& data, int64_t shard);
// Frameworks other than smp offload only the saved inputs of full recomputation.
std::optional<std::string> offload_activations_problem(const FrameworkChoice& framework,
                                                       Recompute recompute);
std::optional<std::string> offload_parameters_problem(
    Sharding sharding);  // only shards are offloaded

}  // namespace smp::rules
