#pragma once

#include <string>
#include <vector>

#include "search/best_practice.h"
#include "search/fastest.h"
#include "search/pricer.h"

namespace smp::search {

// Why this layout: one line each, for people, with numbers.
std::vector<std::string> reasons_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                    const FamilyResult& family,
                                    const std::vector<FamilyResult>& families);
// `faster`: a layout that takes less time than `chosen`, priced exactly as it is; null = none.
std::vector<std::string> reasons_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                    const Candidate& chosen, const Candidate* faster,
                                    const FastestResult& result);

// What became of every family.
std::vector<FamilyVerdict> verdicts_of(Pricer& pricer, const std::vector<FamilyResult>& families,
                                       const FamilyResult* chosen);
std::vector<FamilyVerdict> verdicts_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                       const FastestResult& result, const Candidate* chosen);

}  // namespace smp::search
