#pragma once

#include <vector>

#include "family.h"
#include "smp/planner/search.h"

namespace smp {

// All (tensor, pipeline) families of a settled job, in the order of the steps.
std::vector<FamilyResult> search_families(const SettledJob& settled);

// Why nothing fits, and the changes that would each make it fit, found by trying them.
Infeasible explain_infeasible(const JobSpec& job, const SettledJob& settled,
                              const std::vector<FamilyResult>& families);

}  // namespace smp
