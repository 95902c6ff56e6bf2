#pragma once

#include "cost/kernel_work.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// What one call of a Mamba-2 layer costs on one rank: input projection, convolution, scan, gated
// norm and output projection, as Megatron-LM's MambaMixer runs them with the kernels of mamba_ssm.
// Tensor ranks share heads and groups. Its norm and residual sum are kernel_work's. Pure.
namespace smp::cost {

void mamba(LayerWork& work, const PricedCall& call);

// Seconds in which context-parallel ranks, forward or backward, exchange parts of sequences for
// heads, as the scan needs whole sequences, and back.
double mamba_exchange_s(const PricedCall& call, const choice::LayoutChoice& choice);

struct MambaBytes {
  double kept = 0;          // from forward to backward, without what projections read
  double output_input = 0;  // what the output projection reads
  double backward = 0;      // temporaries of the scan's backward
};
// `element`: bytes of one; `ranks` share the heads.
MambaBytes mamba_bytes(const ModelSpec& model, double tokens, double element, double ranks);

}  // namespace smp::cost
