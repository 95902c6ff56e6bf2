#include "operators/operator.h"

namespace smp {
namespace {

class FeatureNorm final : public Operator {
 public:
  explicit FeatureNorm(const Norm& norm) : norm_(norm) {}

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/, const CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor stats = norm_.empty_stats(x);
    at::Tensor y = norm_.forward(x, stats);
    saved.push_back(x);
    saved.push_back(std::move(stats));
    return y;
  }
  size_t kept() const override { return 2; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/, const CallContext& /*call*/,
                      WeightWork* /*later*/) const override {
    norm_.backward(dy, kept[0], kept[1], {}, TensorRegion());
    return dy;
  }

 private:
  const Norm norm_;
};

}  // namespace

OperatorPtr make_feature_norm(const Norm& norm) { return std::make_unique<FeatureNorm>(norm); }

}  // namespace smp
