#pragma once

#include <optional>
#include <string_view>

#include "smp/interchange/importers/imported.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::importers {

// The format of a YAML document, by its keys; nothing for smp's own, for accelerate's and for
// unknown ones.
std::optional<ForeignFormat> yaml_format(const text::YamlNode& root);

// TOML with torchtitan's sections.
bool is_torchtitan_toml(std::string_view text);

// Keys of accelerate, some of which other programs have too.
bool is_accelerate_yaml(const text::YamlNode& root);

}  // namespace smp::importers
