#pragma once

#include "importers/huggingface_reader.h"

namespace smp::importers {

// Reads the experts of a config.json: their number and widths, the shared expert, and which layers
// have them.
void read_huggingface_experts(HuggingFaceReader reader);

}  // namespace smp::importers
