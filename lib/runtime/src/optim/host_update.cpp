#include "optim/host_update.h"

#include <algorithm>

#include "kernels/device_functions.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/layout/layout.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::optim {
namespace {

at::Tensor buffer(int64_t elements, DType dtype) {
  return ledger::empty_tensor({elements}, at::TensorOptions().dtype(ledger::scalar_type_of(dtype)));
}

}  // namespace

HostUpdate::HostUpdate(const parameters::FlatParameters& parameters, ledger::MemoryLedger& host) {
  const ledger::LedgerScope scope(host);
  const ledger::CategoryScope category(MemoryCategory::kOptimizer);
  const ledger::ItemScope item("optimizer step buffers");
  const int64_t elements = layout::host_update_elements(parameters.layout());
  gradients_ = buffer(elements, parameters.gradient_dtype());
  if (!parameters.weights_on_host()) weights_ = buffer(elements, parameters.dtype());
}

template <typename T>
void HostUpdate::run(const UpdateRule& rule, const kernels::UpdateRange<T>& range,
                     const at::Tensor& weights, const at::Tensor& gradients) {
  for (int64_t begin = 0; begin < range.count; begin += gradients_.numel()) {
    kernels::UpdateRange<T> chunk = range;
    chunk.count = std::min(gradients_.numel(), range.count - begin);
    const auto here = [&](const at::Tensor& whole) { return whole.narrow(0, begin, chunk.count); };
    const auto there = [&](const at::Tensor& buffer) { return buffer.narrow(0, 0, chunk.count); };
    there(gradients_).copy_(here(gradients));
    chunk.gradients = gradients_.const_data_ptr<T>();
    for (T*& state : chunk.states) {
      if (state != nullptr) state += begin;
    }
    chunk.weights += begin;
    if (chunk.copy != nullptr) chunk.copy += begin;
    if (weights_.defined() &&
        chunk.copy != nullptr) {  // the update reads master weights on the host and writes these
      chunk.copy = static_cast<uint16_t*>(weights_.mutable_data_ptr());
    } else if (weights_.defined()) {
      there(weights_).copy_(here(weights));
      chunk.weights = weights_.mutable_data_ptr<T>();
    }
    rule.update(kernels::functions_of(gradients_), chunk);
    if (weights_.defined()) here(weights).copy_(there(weights_));
  }
}

template void HostUpdate::run(const UpdateRule&, const kernels::UpdateRange<float>&,
                              const at::Tensor&, const at::Tensor&);
template void HostUpdate::run(const UpdateRule&, const kernels::UpdateRange<double>&,
                              const at::Tensor&, const at::Tensor&);

}  // namespace smp::optim
