#pragma once

#include <cstdint>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/job_spec.h"

// The tensor-parallel group as the layers see it, and the kinds of layers that it splits. Used by
// the thread that runs the layers.
namespace smp::kernels {

struct TensorParallel {
  comm::Communicator* communicator = nullptr;  // nullptr when degree == 1
  int64_t degree = 1;
  int64_t rank = 0;
  // Sequence parallelism: outside the tensor-parallel regions each rank has 1/degree of the tokens.
  bool splits_sequence = false;
  TensorKinds kinds = {};  // the kinds of layers whose matrices are split

  // The number of parts of a microbatch's tokens outside the tensor-parallel regions.
  int64_t parts() const { return splits_sequence ? degree : 1; }
};

}  // namespace smp::kernels
