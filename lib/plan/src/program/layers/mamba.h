#pragma once

#include "program/builder.h"

namespace smp::program {

// x + a Mamba-2 mixer of it, as Megatron-LM's MambaMixer: projection, convolution, scan, gated
// norm, projection. Tensor ranks share heads and groups.
ValueId mamba_forward(ProgramBuilder& builder, ValueId x);

}  // namespace smp::program
