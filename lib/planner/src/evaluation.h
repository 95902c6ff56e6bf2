#pragma once

#include <cstdint>
#include <string>

#include "resolve.h"
#include "smp/plan/plan.h"

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

Evaluation evaluate(const SettledJob& settled, const Choice& choice);

// "45.2 GiB a rank (stage 0, backward), 37.6 GiB allowed: fp32 master weights 12.1 GiB, ..."
std::string memory_problem(const RankPrediction& rank, int64_t allowed);

}  // namespace smp
