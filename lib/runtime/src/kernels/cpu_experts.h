#pragma once

#include "kernels/expert_functions.h"

namespace smp::kernels {

// The CPU's mixture of experts, by the loops of expert_rows.h.
const ExpertFunctions& cpu_experts();

}  // namespace smp::kernels
