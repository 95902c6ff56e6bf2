#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// Rules of the axes and settings beyond t, p and z (legality.h), one small function each: what is
// wrong, as the equation that failed; nothing = legal. Pure; any thread.
//   context: c divides the sequence; in a decoder 2c does, so that each rank takes an early and a
//     late slice of causal attention (Megatron-LM); p*t*c divides the world size
//   experts: e divides the experts, et the width of one, e*et the ranks t*c*d of a stage
//   virtual stages: p*v divides the layers; of zb_v v = 2; p divides the microbatches (Megatron-LM)
//   sequence parallelism: t > 1 divides the tokens that a rank keeps of a sequence
//   batch ramp: every size on the way is a multiple of micro_batch x d
//   offloading: activations with recompute full, parameters with sharding parameters
namespace smp::choice {

std::optional<std::string> context_problem(const JobSpec& job, int64_t context);
std::optional<std::string> expert_problem(const JobSpec& job, int64_t expert, int64_t expert_tensor,
                                          int64_t stage_ranks);
std::optional<std::string> virtual_stages_problem(const JobSpec& job, const LayoutChoice& choice);
std::optional<std::string> sequence_parallel_problem(const JobSpec& job, int64_t tensor,
                                                     int64_t context);
std::optional<std::string> batch_ramp_problem(const TrainingSpec& training, int64_t micro_batch,
                                              int64_t data);
std::optional<std::string> offload_problem(const JobSpec& job, const LayoutChoice& choice);

// All of them, those of legality.h and whether the degrees fill the cluster: the first that is
// broken.
std::optional<std::string> layout_problem(const JobSpec& job, const LayoutChoice& choice);

}  // namespace smp::choice
