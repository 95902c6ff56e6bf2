#include "layers/operators/operator.h"
#include "ledger/tensor_factories.h"

namespace smp::layers {
namespace {

// Which elements go is a function of their place, the sample and the step: nothing is kept, and a
// call that does not train drops nothing.
class DropoutOperator final : public Operator {
 public:
  // Of cut channels it knows where in the sample they are.
  DropoutOperator(const model::PlacedOperator& placed, const kernels::TensorRegion& region)
      : share_(placed.spec.p),
        place_(placed.index),
        first_(placed.in_cut.is_cut() ? placed.in_cut.begin({region.degree(), region.rank()}) : 0) {
  }

  at::Tensor forward(const at::Tensor& x, bool may_overwrite, const kernels::CallContext& call,
                     Saved& /*saved*/) const override {
    at::Tensor y = may_overwrite ? x : ledger::empty_tensor_like(x);
    apply(x, call, y);
    return y;
  }
  size_t kept() const override { return 0; }

  at::Tensor backward(Saved /*kept*/, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& call,
                      DeferredWeightGradients* /*deferred*/) const override {
    apply(dy, call, dy);
    return dy;
  }

 private:
  void apply(const at::Tensor& x, const kernels::CallContext& call, const at::Tensor& y) const {
    kernels::Dropout dropout =
        kernels::dropout_of(share_, call, place_, kernels::DropoutSite::kOutput, 1);
    dropout.first_col = first_;
    const int64_t samples = x.size(0);
    kernels::functions_of(x).drop(dropout, x.view({samples, -1}), y.view({samples, -1}));
  }

  const double share_;
  const int64_t place_;  // in the list
  const int64_t first_;  // element of a sample
};

}  // namespace

OperatorPtr make_dropout(const model::PlacedOperator& placed, const kernels::TensorRegion& region) {
  return std::make_unique<DropoutOperator>(placed, region);
}

}  // namespace smp::layers
