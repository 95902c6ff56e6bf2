#pragma once

#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

// Adds to a stage's actions, which start its reductions, what follows each start: waits, sums over
// the replicas (hybrid sharding), and norms. Without buckets it returns the actions unchanged.
// Pure.
//
// A bucket's reduction has one or two halves. The *first half* (kReduce) sums over the shard ranks,
// or over all data-parallel ranks. With replicas the *second half* (kReduceReplicas) sums this
// rank's part over them, once a step. A bucket is *in flight* from its start to its last wait.
//
//   cap      At most `most_reductions` buckets are in flight, where there is a cap: a start waits
//   for
//            the oldest. In a pipeline the stages before wait with it.
//   buffer   A first half is waited for before another bucket's gradients fill its buffer.
//   overlap  A second half starts as soon as its first half is expected to be done: when the
//            backward has made 1 / `reduced_per_computed` as many more gradients as the bucket has.
//            An earlier place would wait for the first half. A later one would leave more second
//            halves for the end of the step, where nothing hides them.
//   end      The step waits for all halves, and sums a bucket's squares while later ones are in
//            flight. An early update waits for its own bucket.
std::vector<Action> place_reductions(std::vector<Action> actions,
                                     const ScheduleParameters& parameters, int64_t stage);

}  // namespace smp::schedule
