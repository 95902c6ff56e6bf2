#pragma once

#include <cstdint>

#include "huggingface/huggingface_types.h"
#include "importers/foreign_keys.h"

namespace smp::importers {

// Reads the rotary positions of a config.json, in the spelling of transformers 4 or 5: the base,
// the share of each head that is turned, and the scaling of the frequencies. Returns the positions
// that the scaling reaches if they are more than the file says, else 0.
int64_t read_huggingface_rope(const huggingface::HuggingFaceType& type, int64_t head_dim,
                              ForeignReader& reader);

}  // namespace smp::importers
