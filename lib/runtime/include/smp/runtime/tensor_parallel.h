#pragma once

#include <cstdint>
#include <string_view>

#include "smp/comm/communicator.h"

namespace at {
class Tensor;
}

// The tensor-parallel group as the layers see it. Column-parallel matmuls need the sum of their
// input gradients over the group, row-parallel ones the sum of their outputs; nothing else is
// exchanged but the softmax statistics of the vocabulary. Used by the thread that runs the layers.
namespace smp {

struct TensorParallel {
  Communicator* communicator = nullptr;  // nullptr when degree == 1
  int64_t degree = 1;
  int64_t rank = 0;
};

// Reduces `tensor` (contiguous, fp32 or fp64) in place over the group. Returns nullptr at once when
// the degree is 1; otherwise the tensor must live, untouched, until the Work is done.
WorkPtr start_all_reduce(const TensorParallel& group, at::Tensor& tensor, ReduceOp op,
                         std::string_view label);

// The same, waited for.
void all_reduce(const TensorParallel& group, at::Tensor& tensor, ReduceOp op,
                std::string_view label);

}  // namespace smp
