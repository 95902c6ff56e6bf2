#pragma once

#include <vector>

#include "shell/shell_script.h"
#include "smp/interchange/importers/imported.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::importers {

// The words of the script's one training command, from its program on. Several commands, and a
// command in a loop, are errors.
std::vector<shell::ShellWord> megatron_command(const shell::ShellScript& script, int source,
                                               text::Diagnostics& diagnostics, Imported& out);

}  // namespace smp::importers
