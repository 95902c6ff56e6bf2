#pragma once

#include <string>

#include "smp/planner/runs/run_record.h"

namespace smp::runpage {

// One page without scripts and without network: what was measured beside what the plan predicted.
std::string run_page(const runs::RunRecord& run);

}  // namespace smp::runpage
