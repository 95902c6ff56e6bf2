#pragma once

#include <cstdint>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/job_spec.h"

// The tensor-parallel group as the layers see it, and what its ranks share. Used by the thread that
// runs the layers.
namespace smp::kernels {

struct TensorParallel {
  comm::Communicator* communicator = nullptr;  // nullptr when degree == 1
  int64_t degree = 1;
  int64_t rank = 0;
  // Between a layer's matrices each rank has its 1/degree of the tokens, not all of them.
  bool splits_sequence = false;
  TensorKinds kinds = {};  // of the layers whose matrices are cut

  // Parts that a microbatch's tokens are in between the layers' matrices.
  int64_t parts() const { return splits_sequence ? degree : 1; }
};

}  // namespace smp::kernels
