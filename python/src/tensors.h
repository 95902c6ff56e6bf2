#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "smp/plan/base/dtype.h"

// What the communicator sees of tensors: addresses of contiguous elements.
namespace smp::pytorch {

// One tensor, contiguous. What is not contiguous is copied, and `after` brings results back.
struct Elements {
  at::Tensor flat;
  int64_t count = 0;
  DType dtype = DType::kU8;

  void* data() const { return flat.mutable_data_ptr(); }
};

// To be moved: types that lib/comm does not name travel as bytes. `after` is null for what is only
// read. `call` begins the message of an error.
Elements moved(const char* call, const at::Tensor& tensor,
               std::vector<std::function<void()>>* after);

// Several tensors of one shape and type as one row of elements, in order: in place where they lie
// side by side in memory, else copied. `read`: they hold what is sent. `after` as above.
Elements row(const char* call, const std::vector<at::Tensor>& tensors, bool read,
             std::vector<std::function<void()>>* after);

// Throws unless all of them are dense, and of the type, the size and the device of `like`.
void check_alike(const char* call, const std::vector<at::Tensor>& tensors, const at::Tensor& like);

// Throws unless `whole`, the call's input or output as `what` says, is `size` times `part`.
void check_whole(const char* call, const char* what, const at::Tensor& whole,
                 const at::Tensor& part, int size);

// Throws unless both are on one device, or on the host.
void check_place(const char* call, const at::Tensor& tensor, const at::Tensor& like);

// The one tensor of a call that torch makes with lists of one.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors);

}  // namespace smp::pytorch
