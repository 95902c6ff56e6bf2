#pragma once

#include <vector>

#include "shell_script.h"
#include "smp/plan/diagnostics.h"
#include "smp/planner/import.h"

namespace smp {

// The words of the one command of a script that trains, from its program on. More than one, and one
// in a loop, are errors.
std::vector<ShellWord> megatron_command(const ShellScript& script, int source,
                                        Diagnostics& diagnostics, Imported& out);

}  // namespace smp
