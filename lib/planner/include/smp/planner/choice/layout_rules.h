#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// Rules of a whole layout, beyond those of its degrees (smp/plan/rules/degree_rules.h): what is
// wrong, as the equation that failed; nothing = legal. Pure; any thread.
//   virtual stages: p*v divides the layers; of zb_v v = 2; p divides the microbatches (Megatron-LM)
//   offloading: activations with recompute full, parameters with sharding parameters
namespace smp::choice {

std::optional<std::string> virtual_stages_problem(const JobSpec& job, const LayoutChoice& choice);
std::optional<std::string> offload_problem(const JobSpec& job, const LayoutChoice& choice);

// Both, the rules of its degrees, and whether the degrees fill the cluster: the first that is
// broken.
std::optional<std::string> layout_problem(const JobSpec& job, const LayoutChoice& choice);

}  // namespace smp::choice
