#pragma once

#include <string>

#include "command_line.h"

namespace smp {

// Whether what was typed fits together: one thing to launch, and no option that would be without
// effect. `ranks`: -n as typed. Throws UsageError.
void check_forms(const request::LaunchRequest& request, bool has_program_mark,
                 const std::string& ranks);

// Takes the number of ranks from mpirun, which has started so many, or SageMaker, whose hosts have
// so many GPUs. Throws UsageError.
void take_outer_ranks(request::LaunchRequest& request);

}  // namespace smp
