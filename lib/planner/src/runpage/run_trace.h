#pragma once

#include <string>

#include "smp/planner/runs/run_record.h"

namespace smp::runpage {

// Of a run with a plan and a trace: the step that the plan predicted above the traced one, on one
// scale, and where they differ: by kind of action, by stage. HTML. Pure.
std::string trace_section(const runs::RunRecord& run);

}  // namespace smp::runpage
