#pragma once

#include <vector>

#include "foreign_keys.h"
#include "shell_script.h"
#include "smp/plan/diagnostics.h"
#include "smp/planner/import.h"

namespace smp {

// Gives the reader each flag of a Megatron-LM command line with its values, once; flags that are
// not known are warnings, and errors where they are near to one that has a meaning here.
void read_megatron_flags(const std::vector<ShellWord>& words, const ImportContext& context,
                         ForeignReader& reader, Diagnostics& diagnostics, Imported& out);

}  // namespace smp
