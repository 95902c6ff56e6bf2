#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/schedule/action.h"

namespace smp::cost {

// What calls of one kind of layer keep from their forward to their backward.
struct Kept {
  int64_t bytes = 0;
  int64_t calls = 0;
};

enum class RunningLayer { kNone, kEmbedding, kBlock, kHead };

// What a stage's layer calls, messages and batches hold at one instant.
struct ActivationBytes {
  Kept embedding;
  Kept blocks;
  Kept checkpoints;       // of blocks that are computed again
  Kept head;              // logits and loss
  Kept deferred;          // saved by the forward for deferred weight gradients
  Kept deferred_made;     // made by the backward for them, without the gradient of the output
  Kept recomputed;        // of calls that were computed again, until their backward
  Kept fetched;           // of calls that came back from the host, until their backward
  int64_t gradients = 0;  // of activations, between two layers or on their way to the stage before
  int64_t transient = 0;  // inside the running layer call
  int64_t again = 0;      // of the transient, what is computed again
  int64_t messages = 0;   // receive buffers, until what was received has been used
  int64_t data = 0;       // tokens and targets of the live microbatches
  int64_t live = 0;       // microbatches in a chunk
  RunningLayer running = RunningLayer::kNone;

  int64_t total() const {
    return embedding.bytes + blocks.bytes + checkpoints.bytes + head.bytes + deferred.bytes +
           deferred_made.bytes + recomputed.bytes + fetched.bytes + gradients + transient +
           messages + data;
  }
};

// The instants of a forward and of a backward (or deferred weight gradients) with the most bytes,
// and the bytes that are left at the optimizer step.
struct ActivationPeaks {
  ActivationBytes forward;
  ActivationBytes backward;
  ActivationBytes step;
  int64_t host_bytes = 0;  // most that lies on the host
};

// One layer of a stage as the walk sees it.
struct WalkedLayer {
  RunningLayer kind = RunningLayer::kBlock;
  program::LayerMemory memory = {};
  bool recomputed = false;  // keeps a checkpoint alone
  bool selective = false;   // in_engine: keeps all but LayerMemory::recomputable_bytes
  // in_engine: computed again from its own input, not from what the layer before it gives then; and
  // the layer after it from its output.
  bool keeps_input = false;
  bool feeds_recompute = false;
  int64_t again_bytes = 0;    // of backward_peak_bytes, what is computed again
  bool opens_chunk = false;   // first layer of a chunk
  bool closes_chunk = false;  // last layer of one
  bool takes_over = false;    // opens a chunk whose input another chunk of this stage makes
  bool hands_over = false;    // closes a chunk whose output another chunk of this stage uses
  int64_t data_bytes = 0;     // of the batch, with its chunk's first layer
  int64_t field_bytes = 0;    // of these, what the layer itself reads
  int64_t whole_bytes = 0;    // of whole samples, while a context-parallel rank takes its slices
  // What it hands to the next layer, as a message or within the stage, and the gradients of that.
  int64_t handed_bytes = 0;
  int64_t handed_gradient_bytes = 0;
  // Of what it takes, the bytes that layers behind it use as well; of the gradients of what it
  // hands on, those that it hands back as they are, added to.
  int64_t shared_input_bytes = 0;
  int64_t passed_gradient_bytes = 0;
};

// What one stage's actions move.
struct WalkedStage {
  std::vector<WalkedLayer> layers;                  // by model index, of the whole model
  std::vector<std::pair<int64_t, int64_t>> chunks;  // first and last layer of each
  int64_t tied_bytes = 0;                           // the gradient of a tied embedding
  bool defers_weight_gradients = false;  // kWeight actions compute weight gradients (zero bubble)
  bool frees_sent_outputs = false;       // what went to the next stage is not kept
  // The calls are lib/runtime's: an output lives until it was used or sent, and a call with
  // deferred weight gradients keeps LayerMemory::deferred_bytes. Elsewhere (autograd) the output
  // and all saved tensors live until the last gradient of the call.
  bool in_engine = false;
};

// Walks the actions, adding and releasing bytes as the engine does.
ActivationPeaks walk_activations(const std::vector<schedule::Action>& actions,
                                 const WalkedStage& stage);

}  // namespace smp::cost
