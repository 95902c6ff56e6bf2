#include "layers/now_or_later.h"
#include "operators/operator.h"

namespace smp {
namespace {

class LinearOperator final : public Operator {
 public:
  explicit LinearOperator(const Linear& linear) : linear_(linear) {}

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/, const CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor y = linear_.forward(x);  // [b, out]
    y.add_(linear_.bias.weight);
    saved.push_back(x);
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool wanted, const CallContext& /*call*/,
                      WeightWork* later) const override {
    at::Tensor dx;
    if (wanted) dx = linear_.input_gradient(dy);
    linear_.add_bias_gradient(dy);
    now_or_later(later, [this, x = std::move(kept[0]), dy = std::move(dy)] {
      linear_.add_weight_gradient(dy, x);
    });
    return dx;
  }

 private:
  const Linear linear_;
};

}  // namespace

OperatorPtr make_linear(const Linear& linear) { return std::make_unique<LinearOperator>(linear); }

}  // namespace smp
