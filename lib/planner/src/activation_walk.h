#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/layers.h"
#include "smp/plan/schedule.h"

namespace smp {

// What a stage's layer calls and messages hold at one instant.
struct ActivationBytes {
  int64_t saved = 0;      // kept from a forward to its backward
  int64_t gradients = 0;  // of activations, between two layers
  int64_t transient = 0;  // inside the running layer call
  int64_t messages = 0;   // receive buffers, and outputs still on their way
  int64_t live_microbatches = 0;

  int64_t total() const { return saved + gradients + transient + messages; }
};

// The fullest instants of a forward and of a backward, and what is left at the optimizer step.
struct ActivationPeaks {
  ActivationBytes forward;
  ActivationBytes backward;
  ActivationBytes step;
};

// Walks the actions of one stage, adding and releasing bytes as the engine does. `memory` has one
// entry per model layer; boundary_bytes is the size of an activation or gradient message.
ActivationPeaks walk_activations(const std::vector<Action>& actions,
                                 const std::vector<int64_t>& layers,
                                 const std::vector<LayerMemory>& memory, int64_t boundary_bytes);

}  // namespace smp
