#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace smp {

// How consecutive layers share a checkpoint, in the words of SMP's set_activation_checkpointing:
// the most layers that do. "each" = 1; "contiguous" = all of a stage's chunk; "group_N" = N of
// them. Nothing for other words.
std::optional<int64_t> layers_per_checkpoint(std::string_view strategy);

}  // namespace smp
