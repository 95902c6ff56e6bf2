#pragma once

#include <string>

#include "smp/planner/run_record.h"

namespace smp {

// One page without scripts and without network: what was measured beside what the plan predicted.
std::string run_page(const RunRecord& run);

}  // namespace smp
