#pragma once

#include <vector>

#include "importers/foreign_keys.h"
#include "shell/shell_script.h"
#include "smp/interchange/importers/imported.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::importers {

// Gives the reader each flag of a Megatron-LM command line with its values, once. An unknown flag
// is a warning, or an error if its name is near to one that is read.
void read_megatron_flags(const std::vector<shell::ShellWord>& words, const ImportContext& context,
                         ForeignReader& reader, text::Diagnostics& diagnostics, Imported& out);

}  // namespace smp::importers
