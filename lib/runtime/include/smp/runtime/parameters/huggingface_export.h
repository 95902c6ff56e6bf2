#pragma once

#include <string>

#include "smp/plan/spec/plan.h"

namespace smp::comm {
class Communicator;
}

namespace smp::parameters {

class FlatParameters;

// Writes <dir>/model.safetensors, in the type of training.save_weights_as, and <dir>/config.json,
// each atomically, on rank 0. Collective over `world`. The tensors travel to rank 0 in blocks
// (traffic "save.weights") and from there into the file. A rank holds at most two blocks beside its
// weights, charged as workspace; a block is 256 KiB, or a tensor's row if that is longer. Weights
// beyond the range of fp16 are saved in the type in which they were trained; the note that says so,
// with its line end, is returned on rank 0.
std::string save_weights(const Plan& plan, const FlatParameters& parameters,
                         comm::Communicator& world, const std::string& dir);

}  // namespace smp::parameters
