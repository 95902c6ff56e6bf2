#pragma once

#include <string_view>

#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::importers {

// Reads TOML into the same tree as YAML, with the places of keys and values. A string is a scalar
// with `quoted` set; other values stay as they are written. Not thread-safe per Diagnostics.
text::YamlTree parse_toml(std::string_view text, int source, text::Diagnostics& diagnostics);

}  // namespace smp::importers
