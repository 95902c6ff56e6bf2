#pragma once

#include <string_view>

#include "importers/foreign_keys.h"

namespace smp::importers {

// A job file has no adapters (LoRA) yet: warns that the plan is that of full fine-tuning. `kind` is
// the file's word, at `place`.
void warn_adapter(std::string_view kind, text::Place place, Imported& out);

}  // namespace smp::importers
