#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/schedule_shape.h"

namespace smp::schedule {

// The order in which a stage runs its passes. A *pass* takes one microbatch through one chunk of
// the stage's layers: forward, backward, or (where the schedule defers weight gradients) weight.
enum class PassKind : uint8_t { kForward, kBackward, kWeight };

struct Pass {
  PassKind kind = PassKind::kForward;
  int16_t chunk = 0;
  int32_t microbatch = 0;
  bool operator==(const Pass&) const = default;
};

// The shape must be one that schedule_refused() accepts.
std::vector<Pass> pass_order(const ScheduleShape& shape, int64_t stage);

// Units that a stage holds at most. A unit is a microbatch in one chunk, from its forward to its
// weight gradient (to its backward where that computes both).
int64_t held_units(const ScheduleShape& shape, int64_t stage);

}  // namespace smp::schedule
