#pragma once

#include <cstdint>

#include "importers/foreign_keys.h"
#include "importers/huggingface_types.h"

namespace smp::importers {

// Sets what a config.json says of rotary positions, in the spelling of transformers 4 or 5: base,
// share of each head that is turned, and how the frequencies are stretched. Returns the positions
// that stretching reaches, where they are more than the file says; else 0.
int64_t read_huggingface_rope(const HuggingFaceType& type, int64_t head_dim, ForeignReader& reader);

}  // namespace smp::importers
