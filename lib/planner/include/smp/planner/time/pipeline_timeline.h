#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/spec/plan.h"

namespace smp::time {

// One pass of one microbatch through one chunk of a stage, in the step that is predicted.
struct TimelineEvent {
  int64_t stage = 0;
  int64_t chunk = 0;
  int64_t microbatch = 0;
  schedule::ActionKind kind = schedule::ActionKind::kForward;  // kForward, kBackward or kWeight
  int64_t start_ns = 0;                                        // from the step's begin
  int64_t end_ns = 0;
};

// The passes of all stages as predict_time() simulates them: by stage, in the order of each. Empty
// where the cluster's rates are unknown. For pictures; about 40 bytes an event, so that a caller
// should look at the plan's microbatches x stages first.
std::vector<TimelineEvent> pipeline_timeline(const Plan& plan);

}  // namespace smp::time
