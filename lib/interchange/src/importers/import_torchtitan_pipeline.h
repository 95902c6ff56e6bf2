#pragma once

#include <cstdint>
#include <optional>

#include "importers/foreign_keys.h"

namespace smp::importers {

// Reads the schedule of a torchtitan configuration with `stages` pipeline stages, and how it cuts
// the model's layers, if their number is known.
void read_torchtitan_pipeline(ForeignReader& reader, std::optional<int64_t> num_layers,
                              int64_t stages);

}  // namespace smp::importers
