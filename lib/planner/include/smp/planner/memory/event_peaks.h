#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

// The most that a rank holds during each event of a run. Pure; any thread.
namespace smp::memory {

struct EventPeak {
  std::string event;  // "load and initialisation", "second step, backward"
  int64_t bytes = 0;
  std::vector<MemoryTerm> terms;  // they sum to `bytes`
};

// Of all ranks of a (stage, tensor) class, in the order of a run: load and initialisation; forward,
// backward and update of the first step; forward and backward of the second; evaluation; saving a
// checkpoint. Outside our engine, the optimizer's momentum and variance exist from the first update
// on (torch.optim and Transformer Engine make them there; DeepSpeed makes them before).
//
// In models with experts, then the second step again where each rank's experts get
// `expert_imbalance` times their share of the tokens: only the experts' activations grow, in
// proportion to the tokens. At 1 these two are left out.
std::vector<EventPeak> event_peaks(const Plan& plan, int64_t stage, int64_t tensor,
                                   double expert_imbalance);

// Not of an empty list; of equal ones the first.
const EventPeak& largest_of(const std::vector<EventPeak>& events);

}  // namespace smp::memory
