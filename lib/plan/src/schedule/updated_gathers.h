#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "smp/plan/schedule/action.h"

namespace smp::schedule {

// Writes the gathers of updated weights (ZeRO-1 and 2) into a stage's actions: at most `most` are
// in flight at once (0: any number), each followed by its wait. A gather starts right after its
// bucket's update if there is room. Otherwise it starts after the wait that makes room, most often
// in the next step's forward. So a list begins with the gathers that the step before has left: the
// first ones in flight, the others not started. Gathers run in the order of updates, which is that
// of the next step's first uses: from the last bucket to the first.
class UpdatedGathers {
 public:
  // At a step's begin. `is_last_whole`: the step before has waited for the last bucket.
  UpdatedGathers(std::vector<Action>& actions, size_t buckets, int64_t most, bool is_last_whole);

  void updated(size_t bucket);  // starts its gather, or queues it
  // Unless it is whole; starts gathers that now have room.
  void wait_for(size_t bucket) {
    if (!is_whole_[bucket]) make_whole(bucket);
  }

 private:
  void make_whole(size_t bucket);
  void start_gathers();
  void emit(ActionKind kind, size_t bucket);

  std::vector<Action>& actions_;
  const int64_t most_;
  std::vector<bool> is_whole_;    // by bucket
  std::deque<size_t> in_flight_;  // oldest first
  std::deque<size_t> to_start_;   // in order
};

}  // namespace smp::schedule
