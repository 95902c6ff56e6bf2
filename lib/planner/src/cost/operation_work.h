#pragma once

#include "cost/priced_call.h"
#include "smp/plan/program/program.h"

namespace smp::cost {

// What the kernels of an operation take: matmuls in seconds, memory-bound kernels in bytes, draws
// of dropout, and how many are launched. What they cost together is call_seconds.cpp's. Messages
// are message_seconds.h's. Pure; any thread.
KernelWork work_of(const PricedCall& call, const program::LayerProgram& program,
                   const program::Operation& operation);

// Seconds of `draws` elements of dropout.
double draw_s(const PricedCall& call, double draws);

}  // namespace smp::cost
