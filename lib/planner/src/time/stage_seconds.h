#pragma once

#include <array>
#include <cstdint>

#include "cost/stage_holds.h"
#include "smp/planner/time/time_estimate.h"

namespace smp::time {

// One microbatch on one stage, with what its computing does not hide of messages and transfers.
// Both tiers read it: the closed form (time_estimator.cpp) and the simulation
// (step_simulation.cpp).
struct StageSeconds {
  double forward = 0;
  double backward = 0;
  double weight = 0;  // of backward: gradients of weights alone
  double once = 0;    // of sharding, once a step
  std::array<double, kTimeParts> parts{};

  double both() const { return forward + backward; }
  void add(TimePart part, double seconds) { parts[static_cast<size_t>(part)] += seconds; }
};

// `holds`: what the stage holds, and its `parameters`.
StageSeconds stage_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                           const cost::StageHolds& holds, const cost::StageParameters& parameters);

}  // namespace smp::time
