#pragma once

#include <string>
#include <vector>

#include "family.h"
#include "smp/planner/search.h"

namespace smp {

// Why this layout: one line each, for people, with numbers.
std::vector<std::string> reasons_of(const SettledJob& settled, const FamilyResult& family,
                                    const std::vector<FamilyResult>& families);

// What became of every family, in the order of the steps.
std::vector<FamilyVerdict> verdicts_of(const SettledJob& settled,
                                       const std::vector<FamilyResult>& families,
                                       const FamilyResult* chosen);

}  // namespace smp
