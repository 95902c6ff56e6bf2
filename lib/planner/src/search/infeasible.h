#pragma once

#include <string>

#include "choice/resolve.h"
#include "search/pricer.h"

namespace smp::search {

// Why nothing fits, and the changes that would each make it fit, found by searching the changed job
// with the same strategy. `closest`: the layout that lacks least, if any layout is legal;
// `problem`: what is wrong with every batch, where that is all.
Infeasible explain_infeasible(const JobSpec& job, choice::Strategy strategy, Pricer& pricer,
                              const std::optional<Candidate>& closest, const std::string& problem);

}  // namespace smp::search
