#include <cmath>

#include "layers/operators/operator.h"
#include "ledger/tensor_factories.h"

namespace smp::layers {
namespace {

class Relu final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool may_overwrite, const kernels::CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor y = may_overwrite ? x : ledger::empty_tensor_like(x);
    at::Tensor passes = ledger::empty_tensor({x.numel()}, x.options().dtype(at::kByte));
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const T* from = kernels::data_of<T>(x);
      T* to = kernels::data_of<T>(y);
      auto* pass = kernels::data_of<uint8_t>(passes);
      for (int64_t i = 0; i < x.numel(); ++i) {
        const kernels::Wide<T> value = from[i];
        pass[i] = value > 0 ? 1 : 0;
        // What is no number stays so, and the loss shows it.
        to[i] = value <= 0 ? T(0) : from[i];
      }
    });
    saved.push_back(std::move(passes));
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      const auto* pass = kernels::data_of<uint8_t>(kept[0]);
      T* gradient = kernels::data_of<T>(dy);
      for (int64_t i = 0; i < dy.numel(); ++i) gradient[i] = pass[i] != 0 ? gradient[i] : T(0);
    });
    return dy;
  }
};

class Gelu final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor y = ledger::empty_tensor_like(x);
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      activation_forward(shape_of(x), kernels::data_of<T>(x), static_cast<const T*>(nullptr),
                         kernels::data_of<T>(y));
    });
    saved.push_back(x);
    return y;
  }
  size_t kept() const override { return 1; }

  // The kernel leaves its result where the input was, which nobody else reads any more.
  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      activation_backward(shape_of(dy), kernels::data_of<T>(kept[0]),
                          static_cast<const T*>(nullptr), kernels::data_of<T>(dy),
                          static_cast<kernels::Wide<T>*>(nullptr));
    });
    return dy;
  }

 private:
  static kernels::ActivationShape shape_of(const at::Tensor& x) {
    return {
        .rows = x.size(0), .cols = x.numel() / x.size(0), .activation = kernels::Activation::kGelu};
  }
};

class Tanh final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor y = ledger::empty_tensor_like(x);
    for_each(x, x, y, [](auto from, auto /*same*/) { return std::tanh(from); });
    saved.push_back(x);
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    for_each(kept[0], dy, dy, [](auto from, auto gradient) {
      const auto y = std::tanh(from);
      return gradient * (1 - y * y);
    });
    return dy;
  }

 private:
  // y = body(a, b), element by element.
  template <typename Body>
  static void for_each(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y,
                       const Body& body) {
    kernels::with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const T* first = kernels::data_of<T>(a);
      const T* second = kernels::data_of<T>(b);
      T* to = kernels::data_of<T>(y);
      for (int64_t i = 0; i < y.numel(); ++i) {
        to[i] = static_cast<T>(body(kernels::Wide<T>(first[i]), kernels::Wide<T>(second[i])));
      }
    });
  }
};

}  // namespace

OperatorPtr make_activation(OperatorKind kind) {
  if (kind == OperatorKind::kRelu) return std::make_unique<Relu>();
  if (kind == OperatorKind::kGelu) return std::make_unique<Gelu>();
  return std::make_unique<Tanh>();
}

}  // namespace smp::layers
