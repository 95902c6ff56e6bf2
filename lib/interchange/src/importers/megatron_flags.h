#pragma once

#include <vector>

#include "importers/foreign_keys.h"
#include "shell/shell_script.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::importers {

// Gives the reader each flag of a Megatron-LM command line with its values, once; flags that are
// not known are warnings, and errors where they are near to one that has a meaning here.
void read_megatron_flags(const std::vector<shell::ShellWord>& words, const ImportContext& context,
                         ForeignReader& reader, text::Diagnostics& diagnostics, Imported& out);

}  // namespace smp::importers
