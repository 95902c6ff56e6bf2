#include "tensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "device.h"

namespace smp::pytorch {
namespace {

void check(const char* call, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "smp: ", call, ": a tensor is missing");
  TORCH_CHECK(tensor.layout() == at::kStrided, "smp: ", call, " takes dense tensors only; got ",
              tensor.layout());
  TORCH_CHECK(is_taken(tensor.device()), "smp: ", call,
              " takes tensors on the CPU or on CUDA GPUs only; got ", tensor.device());
}

Elements elements_of(at::Tensor flat) {
  Elements elements;
  elements.count = flat.numel();
  switch (flat.scalar_type()) {
    case at::kFloat: elements.dtype = DType::kF32; break;
    case at::kDouble: elements.dtype = DType::kF64; break;
    case at::kBFloat16: elements.dtype = DType::kBF16; break;
    case at::kHalf: elements.dtype = DType::kF16; break;
    case at::kInt: elements.dtype = DType::kI32; break;
    case at::kLong: elements.dtype = DType::kI64; break;
    case at::kByte: elements.dtype = DType::kU8; break;
    default: elements.dtype = DType::kU8; elements.count = int64_t(flat.nbytes());
  }
  elements.flat = std::move(flat);
  return elements;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool side_by_side(const std::vector<at::Tensor>& tensors) {
  const auto* next = static_cast<const char*>(tensors.front().const_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain(tensor) || tensor.const_data_ptr() != next ||
        !tensor.storage().is_alias_of(tensors.front().storage()))
      return false;
    next += tensor.nbytes();
  }
  return true;
}

}  // namespace

Elements moved(const char* call, const at::Tensor& tensor,
               std::vector<std::function<void()>>* after) {
  check(call, tensor);
  if (is_plain(tensor)) return elements_of(tensor.detach());
  Elements elements = elements_of(tensor.detach().resolve_conj().resolve_neg().contiguous());
  if (after != nullptr)
    after->push_back([to = tensor.detach(), from = elements.flat] { to.copy_(from); });
  return elements;
}

Elements row(const char* call, const std::vector<at::Tensor>& tensors, bool read,
             std::vector<std::function<void()>>* after) {
  TORCH_CHECK(!tensors.empty(), "smp: ", call, ": the list of tensors is empty");
  for (const at::Tensor& tensor : tensors) check(call, tensor);
  const at::Tensor& first = tensors.front();
  const int64_t each = first.numel(), all = each * int64_t(tensors.size());
  if (each > 0 && side_by_side(tensors))
    return elements_of(first.detach().as_strided({all}, {1}, first.storage_offset()));
  const at::Tensor flat = at::empty({all}, first.options().requires_grad(false));
  const auto part = [flat, each](size_t i, const at::Tensor& like) {
    return flat.narrow(0, int64_t(i) * each, each).view(like.sizes());
  };
  if (read) {
    for (size_t i = 0; i < tensors.size(); ++i) part(i, tensors[i]).copy_(tensors[i].detach());
  }
  if (after != nullptr) {
    after->push_back([part, tensors] {
      for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(part(i, tensors[i]));
    });
  }
  return elements_of(flat);
}

void check_alike(const char* call, const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    check(call, tensor);
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "smp: ", call,
                ": tensors of different types: ", tensor.scalar_type(), " and ",
                like.scalar_type());
    TORCH_CHECK(tensor.numel() == like.numel(), "smp: ", call,
                ": tensors of different sizes: ", tensor.numel(), " and ", like.numel(),
                " elements");
    check_place(call, tensor, like);
  }
}

void check_whole(const char* call, const char* what, const at::Tensor& whole,
                 const at::Tensor& part, int size) {
  check(call, whole);
  check(call, part);
  TORCH_CHECK(whole.scalar_type() == part.scalar_type(), "smp: ", call,
              ": tensors of different types: ", whole.scalar_type(), " and ", part.scalar_type());
  check_place(call, whole, part);
  TORCH_CHECK(whole.numel() == part.numel() * size, "smp: ", call, ": the ", what, " has ",
              whole.numel(), " elements, not ", size, " x ", part.numel());
}

void check_place(const char* call, const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK(tensor.device() == like.device(), "smp: ", call,
              ": tensors on different devices: ", tensor.device(), " and ", like.device());
}

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "smp: ", call, " takes one tensor per rank; got ",
              tensors.size());
  check(call, tensors.front());
  return tensors.front();
}

}  // namespace smp::pytorch
