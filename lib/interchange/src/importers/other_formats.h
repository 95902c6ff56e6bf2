#pragma once

#include <string>
#include <string_view>

#include "smp/plan/text/yaml_tree.h"

namespace smp::importers {

// What a file is that no importer reads, and what to do with it: "a NeMo configuration: ...". Empty
// where it is none of those that are known. `root` is the file as YAML or JSON.
std::string other_format(std::string_view text, const text::YamlNode& root);

// A program in Python, which --from has no word for; empty where the text is none.
std::string python_program(std::string_view text);

}  // namespace smp::importers
