#pragma once

#include <string>

#include "pricer.h"
#include "resolve.h"

namespace smp {

// Why nothing fits, and the changes that would each make it fit, found by searching the changed job
// with the same strategy. `closest`: the layout that lacks least, if any layout is legal;
// `problem`: what is wrong with every batch, where that is all.
Infeasible explain_infeasible(const JobSpec& job, Strategy strategy, Pricer& pricer,
                              const std::optional<Candidate>& closest, const std::string& problem);

}  // namespace smp
