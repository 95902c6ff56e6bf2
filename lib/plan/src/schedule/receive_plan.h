#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/pass_order.h"

namespace smp::schedule {

// A message that a stage must start to receive, and before which of its passes (-1 = before all).
// The start stands after the pass before has its own input: "before pass i" is where i is about to
// compute.
struct StartReceive {
  int64_t before_pass = -1;
  int64_t pass = 0;  // that uses it: index in the stage's order
  int64_t peer = 0;
};

// Whether the pass needs a message, and from which stage. A chunk that hands over to another chunk
// of its own stage sends nothing.
struct Neighbour {
  bool exists = false;
  ChunkPlace place;
};
Neighbour source_of(const ScheduleShape& shape, int64_t stage, const Pass& pass);
Neighbour target_of(const ScheduleShape& shape, int64_t stage, const Pass& pass);

// For each stage, all of its receives in the order to start them.
std::vector<std::vector<StartReceive>> plan_receives(const ScheduleShape& shape,
                                                     const std::vector<std::vector<Pass>>& orders);

}  // namespace smp::schedule
