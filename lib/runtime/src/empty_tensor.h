#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "smp/plan/layer_tensors.h"
#include "torch_dtype.h"

namespace smp {

inline at::Tensor empty_tensor(const TensorSpec& spec, at::Device device) {
  return at::empty(spec.shape,
                   at::TensorOptions().dtype(scalar_type_of(spec.dtype)).device(device));
}

}  // namespace smp
