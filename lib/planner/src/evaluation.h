#pragma once

#include <cstdint>
#include <string>

#include "resolve.h"
#include "smp/plan/plan.h"
#include "smp/planner/memory_model.h"
#include "smp/planner/time_model.h"

namespace smp {

// One layout, priced: the fullest rank, the time of a step, and whether it may be run.
struct Evaluation {
  Choice choice;
  int64_t data = 1;  // data-parallel degree
  RankPrediction fullest;
  int64_t host_bytes = 0;  // of offloaded activations on the fullest host
  bool fits = false;
  std::string problem;           // why it does not fit
  double seconds_per_token = 0;  // only where it fits
  int64_t step_ns = 0;
};

// What layouts share that differ in their sharding alone.
struct Models {
  explicit Models(const Plan& plan) : memory(plan), time(plan) {}
  MemoryModel memory;
  TimeModel time;
};

Evaluation evaluate(const SettledJob& settled, const Choice& choice, Models& models);

// "45.2 GiB a rank (stage 0, backward), 37.6 GiB allowed: fp32 master weights 12.1 GiB, ..."
std::string memory_problem(const RankPrediction& rank, int64_t allowed);

}  // namespace smp
