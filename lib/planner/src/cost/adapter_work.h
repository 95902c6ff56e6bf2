#pragma once

#include "cost/priced_call.h"
#include "smp/plan/model/layers.h"

// The kernels and messages of low-rank adapters. Pure.
namespace smp::cost {

// Rows that a rank's experts get, how many experts that is, and the ranks that cut each.
struct ExpertRows {
  double each = 0, own = 0, tensor = 1;
};

// The small matmuls of a block's adapters, in 16 bits whatever the frozen matrices run in, and the
// passes that scale and add their outputs.
void adapters(LayerWork& work, const PricedCall& call, model::LayerKind block,
              const ExpertRows& experts = {});

// Sums over tensor ranks of what is as wide as the rank: beside a matrix that is cut by columns
// forward, beside one that is cut by rows backward. Seconds.
struct AdapterMessages {
  double forward = 0, backward = 0;
};
AdapterMessages adapter_messages(const PricedCall& call, const choice::LayoutChoice& choice,
                                 model::LayerKind block);

}  // namespace smp::cost
