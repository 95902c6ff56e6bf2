#include "layers/operators/operator.h"

namespace smp::layers {
namespace {

class FeatureNorm final : public Operator {
 public:
  explicit FeatureNorm(const kernels::Norm& norm) : norm_(norm) {}

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor stats = norm_.empty_stats(x);
    at::Tensor y = norm_.forward(x, stats);
    saved.push_back(x);
    saved.push_back(std::move(stats));
    return y;
  }
  size_t kept() const override { return 2; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    norm_.backward(dy, kept[0], kept[1], {}, kernels::TensorRegion());
    return dy;
  }

 private:
  const kernels::Norm norm_;
};

}  // namespace

OperatorPtr make_feature_norm(const kernels::Norm& norm) {
  return std::make_unique<FeatureNorm>(norm);
}

}  // namespace smp::layers
