#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {

// Rows of the vocabulary that one rank holds, padding included.
double vocabulary_rows(const JobSpec& job, const choice::LayoutChoice& choice);

// Elements of the copy of a tied embedding that the head has in a pipeline; 0 where it has none.
double tied_copy(const JobSpec& job, const choice::LayoutChoice& choice);

// The parameter counts of KindBytes, of one layer that is trained.
void count_parameters(KindBytes& bytes, const JobSpec& job, const choice::LayoutChoice& choice,
                      const model::LayerSpec& layer);

}  // namespace smp::cost
