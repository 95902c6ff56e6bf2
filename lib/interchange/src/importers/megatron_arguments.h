#pragma once

#include <string_view>

#include "importers/foreign_keys.h"

// Megatron-LM's arguments as fields instead of flags: the YAML of --yaml-cfg, and the list that a
// run prints. Both hold the arguments' names, with defaults.
namespace smp::importers {

bool is_megatron_yaml(const text::YamlNode& root);
void read_megatron_yaml(const text::YamlNode& root, text::Diagnostics& diagnostics,
                        const ImportContext& context, Imported& out);

// `text` is what printed_megatron_arguments() leaves of a log.
void read_printed_megatron(std::string_view text, int source, text::Diagnostics& diagnostics,
                           const ImportContext& context, Imported& out);

}  // namespace smp::importers
