#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/pass_order.h"

namespace smp::schedule {

// A receive that a stage must start, and the pass before which it starts (-1 = before all passes).
// "Before pass i" means: pass i has its input and is about to compute.
struct StartReceive {
  int64_t before_pass = -1;
  int64_t pass = 0;  // the pass that uses the message: index in the stage's order
  int64_t peer = 0;
};

// The chunk whose message the pass needs (source_of) or which needs its message (target_of).
// Nothing is sent between two chunks of one stage.
struct Neighbour {
  bool exists = false;
  ChunkPlace place;
};
Neighbour source_of(const ScheduleShape& shape, int64_t stage, const Pass& pass);
Neighbour target_of(const ScheduleShape& shape, int64_t stage, const Pass& pass);

// The receives of each stage, in the order in which they are started.
std::vector<std::vector<StartReceive>> plan_receives(const ScheduleShape& shape,
                                                     const std::vector<std::vector<Pass>>& orders);

}  // namespace smp::schedule
