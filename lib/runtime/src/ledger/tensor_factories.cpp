#include "ledger/tensor_factories.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ledger/torch_dtype.h"

namespace smp::ledger {

at::Tensor empty_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::empty(shape, options);
}

at::Tensor empty_tensor(const model::TensorSpec& spec, at::Device device) {
  return empty_tensor(spec.shape,
                      at::TensorOptions().dtype(scalar_type_of(spec.dtype)).device(device));
}

at::Tensor empty_tensor_like(const at::Tensor& x) { return at::empty_like(x); }

at::Tensor zero_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::zeros(shape, options);
}

at::Tensor zero_tensor_like(const at::Tensor& x) { return at::zeros_like(x); }

at::Tensor full_tensor(at::IntArrayRef shape, const at::Scalar& value,
                       const at::TensorOptions& options) {
  return at::full(shape, value, options);
}

}  // namespace smp::ledger
