#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace smp::parameters {

// The part of a bucket that one rank updates; see flat_parameters.h.
struct OwnedPart {
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor weights, gradients;  // views, [end - begin]; gradients undefined once dropped
};

}  // namespace smp::parameters
