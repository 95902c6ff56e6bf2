#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/layout/stage_layers.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"
#include "smp/planner/cost/layer_kinds.h"

// What a stage holds of the model: how many layers of each kind. Pure; any thread.
namespace smp::cost {

// Whether `stage` holds the head: the last one, but in the V of zb_v the first.
bool holds_head(const choice::LayoutChoice& choice, int64_t stage);

struct StageHolds {
  std::vector<double> of_kind;           // by LayerKinds' number
  double blocks = 0;                     // those that are dealt to stages
  double further_tokens = 0;             // those that predict further tokens
  double frozen_chunks = 0;              // chunks of the stage with frozen blocks
  bool embedding = false, head = false;  // the first layer of the model, and the last

  double all_blocks() const { return blocks + further_tokens; }
};

// Whether chunks are counted one by one, as where stages are priced by their very layers; else a
// stage with several chunks counts as one piece of the model.
bool counts_chunks(const LayerKinds& kinds, const choice::LayoutChoice& choice);

// Of the stage of a choice; and of all of them.
StageHolds stage_holds(const LayerKinds& kinds, const choice::LayoutChoice& choice, int64_t stage);
std::vector<StageHolds> all_stage_holds(const LayerKinds& kinds,
                                        const choice::LayoutChoice& choice);
// Of the stage of a plan.
StageHolds stage_holds(const LayerKinds& kinds, const layout::StageLayers& layers);

// On one tensor rank, before sharding.
StageParameters parameters_of(const LayerBytes& layers, const StageHolds& holds);

// Parameters of its blocks, trained or not, without what joins further tokens.
double block_parameters(const LayerBytes& layers, const StageHolds& holds);

}  // namespace smp::cost
