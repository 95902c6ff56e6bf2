#pragma once

#include <string>
#include <vector>

namespace smp {

// The words behind --torchrun-compat, which are those of torchrun, as smp-launch's own; options
// that are not given may stand in PET_* variables, as for torchrun. What smp-launch does anyway, or
// needs not, is dropped (docs/from-torchrun.md has the list); what it cannot do is a
// UsageError.
std::vector<std::string> words_of_torchrun(const std::vector<std::string>& words,
                                           const std::vector<std::string>& environment);

}  // namespace smp
