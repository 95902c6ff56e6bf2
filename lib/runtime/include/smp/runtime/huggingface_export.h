#pragma once

#include <string>

#include "smp/plan/plan.h"

namespace smp {

class Communicator;
class FlatParameters;

// Writes <dir>/model.safetensors, in the type that training.save_weights_as says, and
// <dir>/config.json, each atomically, on rank 0. Collective over
// `world`: the tensors travel to rank 0 in blocks (traffic "save.weights") and from there into the
// file, so that a rank holds two blocks of 256 KiB (a tensor's row, if that is longer) at a time
// beside its weights, charged as workspace. Weights beyond the range of fp16 are saved in the type
// in which they were trained; the note that says so, with its line end, is returned on rank 0.
std::string save_weights(const Plan& plan, const FlatParameters& parameters, Communicator& world,
                         const std::string& dir);

}  // namespace smp
