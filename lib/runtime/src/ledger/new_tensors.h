#pragma once

#include <ATen/core/Tensor.h>

#include "smp/plan/model/layer_tensors.h"

// Tensors with memory of their own, by torch's functions of almost these names. Those are declared
// in headers of operators, each of which costs gcc a second of every file that includes one; what
// are methods of tensors costs nothing.
namespace smp::ledger {

at::Tensor empty_tensor(at::IntArrayRef shape, const at::TensorOptions& options);
at::Tensor empty_tensor(const model::TensorSpec& spec, at::Device device);
at::Tensor empty_tensor_like(const at::Tensor& x);
at::Tensor zero_tensor(at::IntArrayRef shape, const at::TensorOptions& options);
at::Tensor zero_tensor_like(const at::Tensor& x);
// Of all values `value`; of shape {} a scalar.
at::Tensor full_tensor(at::IntArrayRef shape, const at::Scalar& value,
                       const at::TensorOptions& options);

}  // namespace smp::ledger
