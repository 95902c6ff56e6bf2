#pragma once

#include <cstdint>

#include "importers/huggingface_reader.h"

namespace smp::importers {

// Reads the rotary positions of a config.json, in the spelling of transformers 4 or 5: the base,
// the share of each head that is turned, and the scaling of the frequencies. Returns the positions
// that the scaling reaches if they are more than the file says, else 0.
int64_t read_huggingface_rope(HuggingFaceReader reader, int64_t head_dim);

// transformers 5 can give kinds of layers their own rotary positions: {"full_attention": {...},
// ...}.
void refuse_rope_by_layers(const text::YamlNode& root, text::Diagnostics& diagnostics);

}  // namespace smp::importers
