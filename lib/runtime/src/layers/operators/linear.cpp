#include "layers/operators/operator.h"
#include "layers/run_or_defer.h"

namespace smp::layers {
namespace {

class LinearOperator final : public Operator {
 public:
  explicit LinearOperator(const ParallelMatrix& matrix) : matrix_(matrix) {}

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor y = matrix_.linear.forward(x);  // [b, out]
    if (const at::Tensor bias = matrix_.bias(); bias.defined()) y.add_(bias);
    saved.push_back(x);
    return matrix_.behind.summed(std::move(y), "tensor.forward");
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool wanted, const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* deferred) const override {
    const kernels::Linear& linear = matrix_.linear;
    kernels::TensorRegion::Sum dx;
    if (wanted) dx = matrix_.before.start_sum(linear.input_gradient(dy), "tensor.backward");
    linear.add_bias_gradient(dy);
    run_or_defer(deferred, [&linear, x = std::move(kept[0]), dy = std::move(dy)] {
      linear.add_weight_gradient(dy, x);
    });
    return dx.wait();
  }

 private:
  const ParallelMatrix matrix_;
};

}  // namespace

ParallelMatrix parallel_matrix(const model::PlacedOperator& placed, const kernels::Linear& linear,
                               const kernels::TensorRegion& region) {
  const bool by_inputs = placed.matrix_cut == model::MatrixCut::kInputs;
  const kernels::TensorRegion alone;
  return {linear, by_inputs ? alone : region, by_inputs ? region : alone};
}

OperatorPtr make_linear(const ParallelMatrix& matrix) {
  return std::make_unique<LinearOperator>(matrix);
}

}  // namespace smp::layers
