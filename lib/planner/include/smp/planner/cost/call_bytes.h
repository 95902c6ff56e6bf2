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

// A kind of block whose weights are frozen, on one rank.
struct FrozenBlock {
  CallBytes call;       // of a block that trains nothing
  double bytes = 0;     // of its weights as they are stored, experts not among them
  double adapters = 0;  // parameters beside them, those of experts not among them
};

// Bytes and parameters of each kind of layer of a job on one rank, as the framework holds
// them (layer_bytes.h).
struct LayerBytes {
  double held = 0;        // of a block and microbatch, by asynchronous messages
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

  // Of fine-tuning (frozen_layers.h).
  FrozenBlock frozen_block, frozen_moe_block, frozen_cross_block;
  double expert_frozen_bytes = 0;  // of one MoE block's experts
  double expert_adapters = 0;
  double embedding_frozen = 0;  // of their parameters
  double head_frozen = 0;
  double frozen_element = 0;  // bytes of a frozen weight that is not quantized

  double largest_block_parameters() const {
    return std::max(
        {block_parameters, moe_block_parameters + expert_parameters, cross_block_parameters});
  }
};

// Trained parameters that a rank of a stage holds: all that data parallelism replicates (or
// shards), and beside them those of experts, whose replicas are fewer. The same of frozen ones.
struct StageParameters {
  double dense = 0;
  double experts = 0;
  double frozen = 0;
  double frozen_experts = 0;
  double frozen_bytes = 0;
  double frozen_expert_bytes = 0;
};

}  // namespace smp::cost
