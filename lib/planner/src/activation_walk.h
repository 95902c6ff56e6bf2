#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/layers.h"
#include "smp/plan/schedule.h"

namespace smp {

// What calls of one kind of layer keep from their forward to their backward.
struct Kept {
  int64_t bytes = 0;
  int64_t calls = 0;  // all of one size
};

enum class RunningLayer { kNone, kEmbedding, kBlock, kHead };

// What a stage's layer calls, messages and batches hold at one instant.
struct ActivationBytes {
  Kept embedding;
  Kept blocks;
  Kept head;              // logits and loss
  int64_t gradients = 0;  // of activations, between two layers or on their way to the stage before
  int64_t transient = 0;  // inside the running layer call
  int64_t messages = 0;   // receive buffers, until what was received has been used
  int64_t data = 0;       // tokens and targets of the live microbatches
  int64_t live_microbatches = 0;
  RunningLayer running = RunningLayer::kNone;

  int64_t total() const {
    return embedding.bytes + blocks.bytes + head.bytes + gradients + transient + messages + data;
  }
};

// The fullest instants of a forward and of a backward, and what is left at the optimizer step.
struct ActivationPeaks {
  ActivationBytes forward;
  ActivationBytes backward;
  ActivationBytes step;
};

// What one stage's actions move. `memory` has one entry per model layer.
struct WalkedStage {
  std::vector<int64_t> layers;
  std::vector<LayerMemory> memory;
  int64_t boundary_bytes = 0;  // an activation or gradient message
  int64_t data_bytes = 0;      // of one microbatch
  int64_t tied_bytes = 0;      // the gradient of a tied embedding
};

// Walks the actions, adding and releasing bytes as the engine does.
ActivationPeaks walk_activations(const std::vector<Action>& actions, const WalkedStage& stage);

}  // namespace smp
