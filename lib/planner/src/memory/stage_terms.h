#pragma once

#include <array>
#include <string>

#include "cost/stage_holds.h"
#include "cost/state_bytes.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/memory/memory_estimate.h"
#include "smp/planner/memory/terms.h"

// The bytes of a rank that do not depend on where in its schedule it is: states, what sharding
// gathers, context. The closed form (memory_estimator.cpp) and the walk (memory_model.cpp) add
// activations to the same ones. Plain sums of scalars, because a search makes them a million times
// a second; the arrays by term are filled for what is kept alone.
namespace smp::memory {

using TermBytes = std::array<double, kTerms>;

inline double& at(TermBytes& bytes, Term term) { return bytes[static_cast<size_t>(term)]; }
inline double at(const TermBytes& bytes, Term term) { return bytes[static_cast<size_t>(term)]; }
double total(const TermBytes& bytes);

// What all stages of a choice share.
struct StateRules {
  StateRules(const JobSpec& job, const choice::LayoutChoice& choice);

  const framework::FrameworkModel& framework;
  double dense_share = 1;  // that a rank has of sharded states: one over its shard ranks
  cost::StateBytes state;
  double expert_share = 1;
  double context = 0, communicators = 0, workspace = 0;
  double tied_group = 0;      // of the communicators', not of a stage between
  double groups_on_host = 0;  // of GPUs' groups
  double copy_bytes = 0;      // of a block's parameter, for its matmuls
  double step_bytes = 0;      // of an updated parameter, while the optimizer steps
  double moving_fragmentation = 0, state_fragmentation = 0;  // by phase

  // fragmentation_of() the phase.
  double fragmentation(PeakPhase phase) const {
    const bool moves = phase == PeakPhase::kForward || phase == PeakPhase::kBackward;
    return moves ? moving_fragmentation : state_fragmentation;
  }
};

struct StageTerms {
  double weights = 0, gradients = 0, gradient_copy = 0;
  double frozen_weights = 0;
  double master = 0, momentum = 0, variance = 0;
  double communicators = 0;
  double constants = 0;                             // with context and workspace
  double read_ahead = 0;                            // of the next batch, in our engine
  double gathered = 0, unreduced = 0, buckets = 0;  // while forward and backward run
  double updating = 0;                              // while the optimizer steps
  double saving = 0;                                // while a checkpoint is written
  bool gradients_later = false;                     // none exists yet at the deepest backward
  bool copy_later = false;                          // made by the step
  bool keeps_buffers = false;                       // gathered and unreduced last all the time
  double host_bytes = 0;  // for messages, and of what is offloaded for good: optimizer, weights

  double total(PeakPhase phase) const;
  TermBytes bytes(PeakPhase phase, const StateRules& rules) const;
};
// Blocks that ZeRO-3 gathers ahead of the running layer.
int64_t blocks_ahead(const JobSpec& job, const cost::LayerBytes& layers);

// Blocks that our engine shards as one bucket, each of so many `elements`.
double blocks_of_bucket(const JobSpec& job, const choice::LayoutChoice& choice, double elements);

// Where weights that are soon needed again stay gathered (FrameworkModel::reuse_elements): how many
// blocks beside the running one when the backward pass begins.
double blocks_reused(const JobSpec& job, const choice::LayoutChoice& choice,
                     const cost::LayerBytes& layers, const cost::StageHolds& holds);
double small_bucket(const JobSpec& job);  // elements; FrameworkModel::small_shard_buckets

// `message_bytes`: message_buffers() of what it holds.
StageTerms stage_terms(const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const StateRules& rules,
                       const cost::StageHolds& holds, double message_bytes);

// How a term comes about, with the layout's values, for what holds `holds` of `live` microbatches.
std::string formula_of(Term term, const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const cost::StageHolds& holds, double live);

// Of what is allocated, the share that the allocator takes from an accelerator besides.
double fragmentation_of(const JobSpec& job, PeakPhase phase);

// Adds what the allocator takes from an accelerator and does not hand out: that share.
void add_fragmentation(TermBytes& bytes, double share);

}  // namespace smp::memory
