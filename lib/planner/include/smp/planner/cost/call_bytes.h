#pragma once

#include <algorithm>

namespace smp::cost {

constexpr double kFp32Bytes = 4;  // of an element

// Bytes of one call (one microbatch) of a kind of layer on one rank. Its input lies outside: it is
// the output of the layer before, or a receive buffer.
struct CallBytes {
  double saved = 0;       // kept from forward to backward when nothing is recomputed
  double selective = 0;   // kept with selective recompute
  double checkpoint = 0;  // kept when the whole layer is recomputed: its input
  double recomputed = 0;  // alive while a recomputed layer's backward runs, beside its checkpoint
  double workspace = 0;   // most temporaries at once in its backward, gradients included
  double output = 0;      // what goes to the next layer; part of what is kept
  double forward = 0;     // most alive in its forward above what was there before
  double input_gradient = 0;  // what its backward hands to the layer before
};

// Bytes and parameters of each kind of layer of a job on one rank, as the framework holds
// them (layer_bytes.h).
struct LayerBytes {
  CallBytes block;        // dense
  CallBytes moe_block;    // with experts
  CallBytes cross_block;  // of a decoder that attends to an encoder as well
  CallBytes embedding;
  CallBytes head;
  double block_parameters = 0;      // of one rank: cut by tensor parallelism
  double moe_block_parameters = 0;  // without the experts
  double cross_block_parameters = 0;
  double expert_parameters = 0;     // one MoE block's experts on one rank
  double embedding_parameters = 0;  // first stage
  double head_parameters = 0;       // last stage; a tied head's copy is counted with p > 1
  double mtp_parameters = 0;        // of one layer that predicts a further token, beside its block
  double largest_layer_parameters = 0;
  // Of these, what stays gathered under sharding: parameters (param_persistence_threshold).
  double block_persistent = 0;
  double cross_block_persistent = 0;
  double embedding_persistent = 0;
  double head_persistent = 0;

  double largest_block_parameters() const {
    return std::max(
        {block_parameters, moe_block_parameters + expert_parameters, cross_block_parameters});
  }
};

// Parameters that a rank of `stage` holds: all that data parallelism replicates (or shards), and
// beside them those of experts, whose replicas are fewer.
struct StageParameters {
  double dense = 0;
  double experts = 0;
};

}  // namespace smp::cost
