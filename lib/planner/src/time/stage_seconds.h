#pragma once

#include <array>
#include <cstdint>

#include "cost/layer_parameters.h"
#include "smp/plan/model/layers.h"
#include "smp/planner/time/time_estimate.h"

namespace smp::time {

// One microbatch on one stage, with what its computing does not hide of messages and transfers.
// Both tiers read it: the closed form (time_estimator.cpp) and the simulation
// (step_simulation.cpp).
struct StageSeconds {
  double forward = 0;
  double backward = 0;
  double weight = 0;  // of backward: gradients of weights alone
  std::array<double, kTimeParts> parts{};

  double both() const { return forward + backward; }
  void add(TimePart part, double seconds) { parts[static_cast<size_t>(part)] += seconds; }
};

// What one microbatch takes in one layer; and forward and backward together.
const cost::CallSeconds& call_of(const cost::LayerSeconds& layers, const JobSpec& job,
                                 const model::LayerSpec& layer);
double seconds_of(const cost::LayerSeconds& layers, const JobSpec& job,
                  const model::LayerSpec& layer);

// What a stage holds.
struct StageContent {
  cost::StageBlocks blocks;
  cost::StageParameters parameters;
};
StageContent stage_content(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, int64_t stage);

StageSeconds stage_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                           int64_t stage, const StageContent& content);

}  // namespace smp::time
