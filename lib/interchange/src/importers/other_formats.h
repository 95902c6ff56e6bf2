#pragma once

#include <string>
#include <string_view>

#include "smp/plan/text/yaml_tree.h"

namespace smp::importers {

// The kind of a file that no importer reads, and what to do with it: "a NeMo configuration: ...".
// Empty for an unknown kind. `root` is the file as YAML or JSON.
std::string other_format(const text::YamlNode& root);

// The same for a Python program, for which --from has no word; empty for other text.
std::string python_program(std::string_view text);

}  // namespace smp::importers
