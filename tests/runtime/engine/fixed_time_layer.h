#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "ledger/tensor_factories.h"
#include "smp/runtime/layers/layer.h"

namespace smp {

// A layer whose calls take a time and compute nothing, nor fill what they give: a block's forward,
// the gradients of its inputs and those of its weights each take `pass_s`, which `spend` spends.
// Embedding and head take none.
class FixedTimeLayer final : public layers::Layer {
 public:
  FixedTimeLayer(const model::LayerSpec& spec, int64_t hidden, double pass_s,
                 std::function<void(double seconds)> spend)
      : kind_(spec.kind), hidden_(hidden), pass_s_(pass_s), spend_(std::move(spend)) {}

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& /*call*/,
                                  layers::Saved* saved) override {
    const at::Tensor& x = inputs.at(0);
    if (saved != nullptr) saved->tensors = {x};
    if (kind_ == model::LayerKind::kHead) return {ledger::full_tensor({}, 1.0, x.options())};
    if (kind_ == model::LayerKind::kEmbedding)
      return {ledger::empty_tensor({x.size(0), x.size(1), hidden_}, at::kFloat)};
    spend_(pass_s_);
    return {ledger::empty_tensor(x.sizes(), x.options())};
  }

  std::vector<at::Tensor> backward(layers::Saved saved, std::vector<at::Tensor> /*gradients*/,
                                   const kernels::CallContext& /*call*/,
                                   layers::DeferredWeightGradients* deferred) override {
    if (kind_ == model::LayerKind::kEmbedding) return {at::Tensor()};
    const at::Tensor dx =
        ledger::empty_tensor(saved.tensors.at(0).sizes(), saved.tensors.at(0).options());
    if (kind_ == model::LayerKind::kHead) return {dx, at::Tensor()};
    spend_(deferred == nullptr ? 2 * pass_s_ : pass_s_);
    if (deferred != nullptr) deferred->defer([this] { spend_(pass_s_); });
    return {dx};
  }

 private:
  model::LayerKind kind_;
  int64_t hidden_;
  double pass_s_;
  std::function<void(double)> spend_;
};

}  // namespace smp
