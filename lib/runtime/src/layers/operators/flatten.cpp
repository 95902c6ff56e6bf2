#include "layers/operators/operator.h"

namespace smp::layers {
namespace {

// A view, forwards and back: the operator before reads its gradient in whatever shape.
class Flatten final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& /*saved*/) const override {
    return x.view({x.size(0), -1});
  }
  size_t kept() const override { return 0; }
  at::Tensor backward(Saved /*kept*/, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    return dy;
  }
};

}  // namespace

OperatorPtr make_flatten() { return std::make_unique<Flatten>(); }

}  // namespace smp::layers
