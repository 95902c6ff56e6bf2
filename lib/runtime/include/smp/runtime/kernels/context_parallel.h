#pragma once

#include "smp/comm/communicator.h"
#include "smp/plan/model/token_slices.h"

namespace smp::kernels {

// The ranks that share a sequence, as the layers see them. Used by the thread that runs the layers.
struct ContextParallel {
  model::ContextPlace place;
  comm::Communicator* ring = nullptr;      // nullptr where its degree is 1
  comm::Communicator* exchange = nullptr;  // likewise
};

}  // namespace smp::kernels
