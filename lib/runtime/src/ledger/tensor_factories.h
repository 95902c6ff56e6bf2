#pragma once

#include <ATen/core/Tensor.h>

#include "smp/plan/model/layer_tensors.h"

// Factory functions for tensors, by torch's functions of almost these names. Torch declares those
// in headers of operators, and each such header costs gcc a second in every file that includes it.
namespace smp::ledger {

at::Tensor empty_tensor(at::IntArrayRef shape, const at::TensorOptions& options);
at::Tensor empty_tensor(const model::TensorSpec& spec, at::Device device);
at::Tensor empty_tensor_like(const at::Tensor& x);
at::Tensor zero_tensor(at::IntArrayRef shape, const at::TensorOptions& options);
at::Tensor zero_tensor_like(const at::Tensor& x);
// Filled with `value`; shape {} gives a scalar.
at::Tensor full_tensor(at::IntArrayRef shape, const at::Scalar& value,
                       const at::TensorOptions& options);

}  // namespace smp::ledger
