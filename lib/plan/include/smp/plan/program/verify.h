#pragma once

#include <string>

#include "smp/plan/program/program.h"

namespace smp::program {

// Proves a program, and returns "" or the first thing that is wrong, with its section, operation
// and value:
//   - each operation has the operands that its entry in the table names
//   - each value is written once, before it is read; what is made again was dropped
//   - nothing is read after its memory was overwritten, and a message's operands wait for its end
//   - an output has the memory of an input only if the operation overwrites that input
//   - each parameter's gradient is added to as often as the forward reads the parameter
//   - inputs and fields of the batch are not overwritten by the forward
//   - everything saved is read by the backward, and the backward reads nothing else of the forward
std::string verify(const LayerProgram& program);

}  // namespace smp::program
