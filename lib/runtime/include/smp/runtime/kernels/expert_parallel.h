#pragma once

#include <cstdint>

#include "smp/comm/communicator.h"

namespace smp::kernels {

// The ranks that share the experts of a layer, as the layers see them. Used by the thread that runs
// the layers.
struct ExpertParallel {
  comm::Communicator* group = nullptr;  // nullptr where the degree is 1
  int64_t degree = 1;
};

}  // namespace smp::kernels
