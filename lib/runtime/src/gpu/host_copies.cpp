#include "gpu/host_copies.h"

#include "gpu/gpu.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"

namespace smp::gpu {

std::byte* HostCopies::bytes_of(const at::Tensor& tensor) {
  const auto bytes = [](const at::Tensor& one) {
    return static_cast<std::byte*>(one.mutable_data_ptr());
  };
  if (gpu_ == nullptr || tensor.device() != gpu_->device()) return bytes(tensor);
  for (const Pair& pair : pairs_) {
    if (pair.there.data_ptr() != tensor.data_ptr()) continue;
    SMP_CHECK_EQ(pair.there.nbytes(), tensor.nbytes());
    return bytes(pair.here);
  }
  pairs_.push_back(
      {tensor, ledger::empty_tensor(tensor.sizes(), tensor.options().device(at::kCPU))});
  return bytes(pairs_.back().here);
}

void HostCopies::fetch() const {
  for (const Pair& pair : pairs_) at::Tensor(pair.here).copy_(pair.there);
}

void HostCopies::store() const {
  for (const Pair& pair : pairs_) at::Tensor(pair.there).copy_(pair.here);
}

}  // namespace smp::gpu
