#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace smp {

// The most consecutive layers that share a checkpoint, for the words of SMP's
// set_activation_checkpointing: "each" = 1; "contiguous" = all of a stage's chunk; "group_N" = N
// layers. Nothing for other words.
std::optional<int64_t> layers_per_checkpoint(std::string_view strategy);

}  // namespace smp
