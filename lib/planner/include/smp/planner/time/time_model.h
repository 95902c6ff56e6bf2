#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/spec/plan.h"

// The time model: a plain roofline for compute, latency + bytes / bandwidth for messages, and an
// event simulation of the stages' schedules for the pipeline. It knows no caches, no kernels and no
// noise; its purpose is to rank layouts. Pure; any thread.
namespace smp::time {

struct TimePrediction {
  int64_t step_ns = 0;
  int64_t bubble_ppm = 0;              // idle share of the busiest stage while the pipeline runs
  std::vector<int64_t> stage_busy_ns;  // computing in one step
  // Where the step goes, of the busiest stage; they sum to step_ns.
  int64_t compute_ns = 0;
  int64_t tensor_ns = 0;    // tensor-parallel messages, never hidden
  int64_t sharding_ns = 0;  // gathers and reductions that computing does not hide
  int64_t offload_ns = 0;   // transfers that computing does not hide
  int64_t bubble_ns = 0;    // waiting for other stages
  int64_t optimizer_ns = 0;
};

TimePrediction predict_time(const Plan& plan);

}  // namespace smp::time
