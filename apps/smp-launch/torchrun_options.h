#pragma once

#include <string>
#include <vector>

namespace smp {

// Translates torchrun's words, behind --torchrun-compat, into smp-launch's. Options may stand in
// PET_* variables, as for torchrun. Options that smp-launch does not need are dropped
// (docs/from-torchrun.md lists them). Options that it cannot honour throw UsageError.
std::vector<std::string> words_of_torchrun(const std::vector<std::string>& words,
                                           const std::vector<std::string>& environment);

}  // namespace smp
