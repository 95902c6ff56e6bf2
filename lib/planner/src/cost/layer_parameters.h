#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {

// Rows of the vocabulary that one rank holds, padding included.
double vocabulary_rows(const JobSpec& job, const choice::LayoutChoice& choice);

// The parameter counts of LayerBytes.
void count_parameters(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice);

// Whether `stage` holds the head: the last one, but in the V of zb_v the first.
bool holds_head(const choice::LayoutChoice& choice, int64_t stage);

// Blocks of `stage` by kind: with experts, of a decoder beside an encoder, and all others; further
// ones predict more tokens.
struct StageBlocks {
  double dense = 0;
  double moe = 0;
  double cross = 0;
  // Of these, the ones that are frozen; and chunks of the stage that hold such.
  double frozen_dense = 0, frozen_moe = 0, frozen_cross = 0;
  double frozen_chunks = 0;

  double all() const { return dense + moe + cross; }
};
// The model's first `frozen` blocks are.
StageBlocks stage_blocks(const ModelSpec& model, const choice::LayoutChoice& choice, int64_t stage,
                         int64_t frozen = 0);

}  // namespace smp::cost
