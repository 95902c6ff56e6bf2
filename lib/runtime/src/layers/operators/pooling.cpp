#include "kernels/image_kernels.h"
#include "layers/operators/operator.h"
#include "ledger/tensor_factories.h"

namespace smp::layers {
namespace {

std::vector<int64_t> batch_of(const at::Tensor& x, const SampleShape& sample) {
  return {x.size(0), sample[0], sample[1], sample[2]};
}

class MaxPool final : public Operator {
 public:
  explicit MaxPool(const model::PlacedOperator& placed) : in_(placed.in), out_(placed.out) {
    const OperatorSpec& spec = placed.spec;
    shape_ = {.channels = in_[0],
              .height = in_[1],
              .width = in_[2],
              .kernel = spec.kernel,
              .stride = spec.stride == 0 ? spec.kernel : spec.stride,
              .padding = spec.padding,
              .out_height = out_[1],
              .out_width = out_[2]};
  }

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor y = ledger::empty_tensor(batch_of(x, out_), x.options());
    at::Tensor places = ledger::empty_tensor(batch_of(x, out_), x.options().dtype(at::kInt));
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      max_pool(shape_, x.size(0) * in_[0], kernels::data_of<T>(x), kernels::data_of<T>(y),
               kernels::data_of<int32_t>(places));
    });
    saved.push_back(std::move(places));
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool wanted, const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    if (!wanted) return {};
    at::Tensor dx = ledger::empty_tensor(batch_of(dy, in_), dy.options());
    const at::Tensor sums = empty_sums(dy, in_[1] * in_[2]);
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      max_pool_backward(shape_, dy.size(0) * in_[0], kernels::data_of<T>(dy),
                        kernels::data_of<int32_t>(kept[0]), kernels::data_of<T>(dx),
                        kernels::data_of<kernels::Wide<T>>(sums));
    });
    return dx;
  }

 private:
  const SampleShape in_, out_;
  kernels::PatchShape shape_;
};

// Windows as torch takes them: of `kernel` at steps of `stride`, or (adaptive) as many as there are
// outputs, which overlap where they do not divide.
std::vector<kernels::Window> windows_of(const OperatorSpec& spec, int64_t in, int64_t out) {
  std::vector<kernels::Window> windows;
  const int64_t stride = spec.stride == 0 ? spec.kernel : spec.stride;
  for (int64_t i = 0; i < out; ++i) {
    windows.push_back(spec.kind == OperatorKind::kAdaptiveAvgPool2d
                          ? kernels::Window{i * in / out, ((i + 1) * in + out - 1) / out}
                          : kernels::Window{i * stride, i * stride + spec.kernel});
  }
  return windows;
}

class MeanPool final : public Operator {
 public:
  explicit MeanPool(const model::PlacedOperator& placed) : in_(placed.in), out_(placed.out) {
    shape_ = {.height = in_[1],
              .width = in_[2],
              .rows = windows_of(placed.spec, in_[1], out_[1]),
              .cols = windows_of(placed.spec, in_[2], out_[2])};
  }

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& /*saved*/) const override {
    at::Tensor y = ledger::empty_tensor(batch_of(x, out_), x.options());
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      mean_pool(shape_, x.size(0) * in_[0], kernels::data_of<T>(x), kernels::data_of<T>(y));
    });
    return y;
  }
  size_t kept() const override { return 0; }

  at::Tensor backward(Saved /*kept*/, at::Tensor dy, bool wanted,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    if (!wanted) return {};
    at::Tensor dx = ledger::empty_tensor(batch_of(dy, in_), dy.options());
    const at::Tensor sums = empty_sums(dy, in_[1] * in_[2]);
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      mean_pool_backward(shape_, dy.size(0) * in_[0], kernels::data_of<T>(dy),
                         kernels::data_of<T>(dx), kernels::data_of<kernels::Wide<T>>(sums));
    });
    return dx;
  }

 private:
  const SampleShape in_, out_;
  kernels::MeanShape shape_;
};

}  // namespace

OperatorPtr make_max_pool(const model::PlacedOperator& placed) {
  return std::make_unique<MaxPool>(placed);
}

OperatorPtr make_mean_pool(const model::PlacedOperator& placed) {
  return std::make_unique<MeanPool>(placed);
}

}  // namespace smp::layers
