#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "new_tensors.h"
#include "smp/runtime/layer.h"

namespace smp {

// A layer whose calls take a time and compute nothing, nor fill what they give: a block's forward,
// the gradients of its inputs and those of its weights each take `pass_s`, which `spend` spends.
// Embedding and head take none.
class FixedTimeLayer final : public Layer {
 public:
  FixedTimeLayer(const LayerSpec& spec, int64_t hidden, double pass_s,
                 std::function<void(double seconds)> spend)
      : kind_(spec.kind), hidden_(hidden), pass_s_(pass_s), spend_(std::move(spend)) {}

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const CallContext& /*call*/, Saved* saved) override {
    const at::Tensor& x = inputs.at(0);
    if (saved != nullptr) *saved = {x};
    if (kind_ == LayerKind::kHead) return {full_tensor({}, 1.0, x.options())};
    if (kind_ == LayerKind::kEmbedding)
      return {empty_tensor({x.size(0), x.size(1), hidden_}, at::kFloat)};
    spend_(pass_s_);
    return {empty_tensor(x.sizes(), x.options())};
  }

  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> /*gradients*/,
                                   const CallContext& /*call*/, WeightWork* later) override {
    if (kind_ == LayerKind::kEmbedding) return {at::Tensor()};
    const at::Tensor dx = empty_tensor(saved.at(0).sizes(), saved.at(0).options());
    if (kind_ == LayerKind::kHead) return {dx, at::Tensor()};
    spend_(later == nullptr ? 2 * pass_s_ : pass_s_);
    if (later != nullptr) later->put_off([this] { spend_(pass_s_); });
    return {dx};
  }

 private:
  LayerKind kind_;
  int64_t hidden_;
  double pass_s_;
  std::function<void(double)> spend_;
};

}  // namespace smp
