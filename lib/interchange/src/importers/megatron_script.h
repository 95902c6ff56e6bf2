#pragma once

#include <vector>

#include "shell/shell_script.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::importers {

// The words of the one command of a script that trains, from its program on. More than one, and one
// in a loop, are errors.
std::vector<shell::ShellWord> megatron_command(const shell::ShellScript& script, int source,
                                               text::Diagnostics& diagnostics, Imported& out);

}  // namespace smp::importers
