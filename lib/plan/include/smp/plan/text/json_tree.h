#pragma once

#include <string_view>

#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// Reads JSON into the same tree as YAML, strictly: a duplicate key, text after the document, bytes
// that are no UTF-8 and what JSON does not know (comments, NaN, a comma too many) are errors with a
// place. A string is a scalar with `quoted` set; numbers, true and false stay as they are written.
// Not thread-safe per Diagnostics.
namespace smp::text {

YamlTree parse_json(std::string_view text, int source, Diagnostics& diagnostics,
                    YamlLimits limits = {.bytes = 1 << 20, .depth = 64});

}  // namespace smp::text
