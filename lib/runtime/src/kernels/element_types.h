#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/wide.h"

// From a tensor to the type of its elements, which are fp64, fp32, bf16 or fp16.
namespace smp::kernels {

// Calls body with a zero of the type of the tensor's elements.
template <typename Body>
void with_element_type(const at::Tensor& tensor, Body&& body) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return body(double());
    case at::kBFloat16: return body(c10::BFloat16());
    case at::kHalf: return body(c10::Half());
    default: return body(float());
  }
}
// The same for tensors that are fp64 or fp32.
template <typename Body>
void with_wide_type(const at::Tensor& tensor, const Body& body) {
  with_element_type(tensor, [&](auto zero) {
    if constexpr (!kIsNarrow<decltype(zero)>) body(zero);
  });
}
inline bool is_narrow(const at::Tensor& tensor) { return tensor.element_size() == 2; }
// Of the same kind as `tensor`, but fp32 where that is 16-bit.
inline at::TensorOptions wide_options(const at::Tensor& tensor) {
  return is_narrow(tensor) ? tensor.options().dtype(at::kFloat) : tensor.options();
}

template <typename T>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

}  // namespace smp::kernels
