#pragma once

#include "smp/plan/text/yaml_tree.h"

namespace smp::importers {

// Puts the values in place of OmegaConf's references to keys of the same file:
// "${model.encoder_seq_length}", and "${.name}" to a neighbour. Other references stay. A value
// keeps the place of its reference.
void follow_references(text::YamlNode& root);

}  // namespace smp::importers
