#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/plan/spec/job_spec.h"

// The rules for degrees and settings of a layout, one function a rule. The job reader checks the
// keys of a file with them; the planner checks every layout that it tries, and every plan that it
// proves. A problem is the equation that failed; nothing = legal. Pure; any thread.
//   tensor: t divides processes_per_host and the heads, and divides the KV heads or is a multiple
//     of them; above 1 the batch is the tensor group's (prescaled_batch)
//   pipeline: p is at most the layers; p*t divides processes_per_host or is a multiple of it, and
//     divides the world size
//   shard: z divides the data-parallel degree d = world / (p*t*c)
//   context: c divides the sequence; in a decoder 2c does, so that each rank takes an early and a
//     late slice of causal attention (Megatron-LM); c divides the world size
//   experts: e divides the experts, et the width of one, e*et the ranks t*c*d of a stage
//   sequence parallelism: t > 1 divides the tokens that a rank keeps of a sequence
//   batch ramp: every batch of the ramp is a multiple of micro_batch x d
namespace smp::rules {

int64_t world_size(const ClusterSpec& cluster);

std::optional<std::string> tensor_problem(const JobSpec& job, int64_t tensor);
std::optional<std::string> pipeline_problem(const JobSpec& job, int64_t tensor, int64_t pipeline);
std::optional<std::string> shard_problem(int64_t data, int64_t shard);
std::optional<std::string> context_problem(const JobSpec& job, int64_t context);
std::optional<std::string> expert_problem(const JobSpec& job, int64_t expert, int64_t expert_tensor,
                                          int64_t stage_ranks);
std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context);
std::optional<std::string> batch_ramp_problem(const TrainingSpec& training, int64_t micro_batch,
                                              int64_t data);

// Rules that the functions above share with the job reader, whose messages name keys.

// Number of slices of a sequence with context parallelism: two for each rank in a decoder.
int64_t context_slices(const ModelSpec& model, int64_t context);
bool divides_experts(const ModelSpec& model, int64_t expert);
bool divides_tokens(int64_t tokens, int64_t tensor);  // sequence parallelism
// Chunks of the schedule on each rank; nothing = virtual_pipeline_degree, which is above 1.
std::optional<int64_t> chunks_of_schedule(PipelineKind kind);
// With several tensor ranks, micro_batch must count the samples of the tensor group.
bool counts_batch_of_group(const ParallelSpec& parallel, int64_t tensor);
// Frameworks other than smp offload only the saved inputs of full recomputation.
bool can_offload_activations(Profile profile, Recompute recompute);
bool can_offload_parameters(Sharding sharding);  // only shards are offloaded

}  // namespace smp::rules
