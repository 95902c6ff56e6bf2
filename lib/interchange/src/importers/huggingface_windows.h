#pragma once

#include "importers/huggingface_reader.h"

namespace smp::importers {

// Reads the sliding window of a config.json, which all layers have, or none.
void read_huggingface_windows(HuggingFaceReader reader);

}  // namespace smp::importers
