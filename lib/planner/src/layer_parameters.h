#pragma once

#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"

namespace smp {

// Blocks of the whole model: an encoder's and a decoder's together.
int64_t block_count(const ModelSpec& model);
// Of them, those with experts.
int64_t moe_block_count(const ModelSpec& model);

// Rows of the vocabulary that one rank holds, padding included.
double vocabulary_rows(const JobSpec& job, const LayoutChoice& choice);

// The parameter counts of LayerBytes.
void count_parameters(LayerBytes& layers, const JobSpec& job, const LayoutChoice& choice);

// Whether `stage` holds the head: the last one, but in the V of zb_v the first.
bool holds_head(const LayoutChoice& choice, int64_t stage);

}  // namespace smp
