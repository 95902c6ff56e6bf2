#pragma once

#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"

namespace smp {

// Rows of the vocabulary that one rank holds, padding included.
double vocabulary_rows(const JobSpec& job, const LayoutChoice& choice);

// The parameter counts of LayerBytes.
void count_parameters(LayerBytes& layers, const JobSpec& job, const LayoutChoice& choice);

// Whether `stage` holds the head: the last one, but in the V of zb_v the first.
bool holds_head(const LayoutChoice& choice, int64_t stage);

// Blocks of `stage` by kind: with experts, of a decoder beside an encoder, and all others; further
// ones predict more tokens.
struct StageBlocks {
  double dense = 0;
  double moe = 0;
  double cross = 0;

  double all() const { return dense + moe + cross; }
};
StageBlocks stage_blocks(const ModelSpec& model, const LayoutChoice& choice, int64_t stage);

}  // namespace smp
