#pragma once

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "smp/comm/communicator.h"
#include "tensors.h"

namespace smp::pytorch {

// The communicator's name for a reduction of tensors of this type. Throws where there is none,
// saying what there is. bool: sum and max are "or", product and min are "and", as NCCL has it.
comm::ReduceOp reduction_of(const char* call, const c10d::ReduceOp& op, at::ScalarType type);

// A tensor as it is to be reduced: complex numbers as pairs of reals, bool as bytes, int8 and int16
// widened to int32. `after`: as of moved().
Elements reduced(const char* call, const at::Tensor& tensor,
                 std::vector<std::function<void()>>* after);

}  // namespace smp::pytorch
