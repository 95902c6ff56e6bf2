#pragma once

#include <memory>
#include <vector>

#include "smp/planner/cost/layer_kinds.h"

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

// One layer of a kind, on one rank.
struct KindBytes {
  CallBytes call;
  // All its parameters, trained or not, without adapters: cut by tensor parallelism.
  double parameters = 0;         // without the experts
  double expert_parameters = 0;  // of the experts on one rank
  double persistent = 0;         // of these, what stays gathered (param_persistence_threshold)
  double further_token = 0;      // of these, what joins a further token to its block
  StageParameters adds;          // what it adds to its stage's, adapters among them

  double all_parameters() const { return parameters + expert_parameters; }
};

// Bytes and parameters of each kind of layer of a job on one rank, as the framework holds
// them (layer_bytes.h).
struct LayerBytes {
  std::shared_ptr<const LayerKinds> kinds;
  std::vector<KindBytes> of_kind;
  double held = 0;      // of a block and microbatch, by asynchronous messages
  double boundary = 0;  // of a microbatch, what a stage hands to the next; of a list the most
  double largest_layer_parameters = 0;

  // Of the fullest block of those that are dealt to stages.
  double largest_block_parameters = 0;
  double trained_block_parameters = 0;
  double frozen_block_bytes = 0;  // of its weights as they are stored

  const KindBytes& of(const model::LayerSpec& layer) const { return of_kind[kinds->of(layer)]; }
  // The first of that kind, which the model has.
  const KindBytes& of(model::LayerKind kind, bool is_frozen = false) const {
    return of_kind[kinds->of(kind, is_frozen)];
  }
  const KindBytes& head() const { return of_kind.back(); }
  // In a list nothing.
  const KindBytes& embedding() const {
    static const KindBytes kNone{};
    return kinds->has_embedding() ? of_kind.front() : kNone;
  }
};

}  // namespace smp::cost
