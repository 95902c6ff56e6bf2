#pragma once

#include "cost/adapter_work.h"
#include "cost/kernel_work.h"

// Seconds of the messages that a block's forward and backward wait for, beside what they hide.
// Pure.
namespace smp::cost {

struct Messages {
  double forward = 0;
  double backward = 0;
};

// Tensor parallelism: what enters and leaves the parts of a layer between two norms, and of these
// the ones whose matrices are cut in pairs. `memories`: of an encoder, that are attended to.
Messages tensor_messages(const PricedCall& call, const choice::LayoutChoice& choice, double parts,
                         double pairs, double memories);

// Ring attention: each rank's keys and values go round, beside the computing of the part before.
Messages context_messages(const PricedCall& call, const choice::LayoutChoice& choice,
                          const LayerWork& work);

Messages with_adapters(Messages tensor, const AdapterMessages& adapters);

}  // namespace smp::cost
