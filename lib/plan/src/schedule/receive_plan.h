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

// The chunk whose message a pass needs (source_of) or which needs its message (target_of). Nothing
// is sent between two chunks of one stage.
struct Neighbour {
  bool exists = false;
  ChunkPlace place;
};

// Of the passes of one stage.
class Neighbours {
 public:
  Neighbours(const ScheduleShape& shape, int64_t stage);

  const Neighbour& source_of(const Pass& pass) const { return beside(pass, PassKind::kForward); }
  const Neighbour& target_of(const Pass& pass) const { return beside(pass, PassKind::kBackward); }
  // Whether any of their messages goes to the stage.
  bool send_to(int64_t stage) const;

 private:
  struct Sides {
    Neighbour before, after;
  };
  // The one before the chunk for passes of kind `down`, the one after it for those that come back.
  const Neighbour& beside(const Pass& pass, PassKind down) const {
    if (pass.kind == PassKind::kWeight) return none_;
    const Sides& sides = of_chunk_[static_cast<size_t>(pass.chunk)];
    return pass.kind == down ? sides.before : sides.after;
  }

  std::vector<Sides> of_chunk_;
  Neighbour none_;
};

// The receives of each stage, in the order in which they are started.
std::vector<std::vector<StartReceive>> plan_receives(const ScheduleShape& shape,
                                                     const std::vector<std::vector<Pass>>& orders);

}  // namespace smp::schedule
