#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::time {

// What the time of a pipeline depends on. Seconds are those of one microbatch in all of a stage's
// chunks; `first` and `last` are what the ends of the model take beyond an average stage (negative
// when they have fewer layers). With zb_v both ends of the model lie on stage 0.
struct PipelineShape {
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t stages = 1;
  int64_t virtual_stages = 1;  // chunks of a stage; of kVirtual alone (kZbV has 2)
  int64_t microbatches = 1;
  int64_t active_microbatches = 0;  // 0 = the schedule's own count
  struct Work {
    double forward_s = 0;
    double backward_s = 0;  // gradients of inputs
    double weight_s = 0;    // gradients of weights; at once after backward_s unless kind is kZb*
  };
  Work stage{};  // average
  Work first{};  // beyond it
  Work last{};
  double send_activation_s = 0;  // one message between neighbours
  double send_gradient_s = 0;
};

// Seconds from the first forward to the last gradient, in closed form: the longest chain of work
// and messages through the schedule. Some ten nanoseconds, no allocation. Equal to
// simulate_pipeline within 1 % for equal stages and some 5 % for uneven ends, and never below the
// work of the busiest stage plus what it takes to reach and to leave it; a test compares them.
// Pure; any thread.
double pipeline_seconds(const PipelineShape& shape);

// What no simulation goes below: a stage starts when the first microbatch has come to it, works,
// and is followed by the last one's way back, where weight gradients are not deferred.
double least_pipeline_seconds(const PipelineShape& shape);

}  // namespace smp::time
