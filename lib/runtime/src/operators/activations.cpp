#include <cmath>

#include "new_tensors.h"
#include "operators/operator.h"

namespace smp {
namespace {

class Relu final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool may_overwrite, const CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor y = may_overwrite ? x : empty_tensor_like(x);
    at::Tensor passes = empty_tensor({x.numel()}, x.options().dtype(at::kByte));
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const T* from = data_of<T>(x);
      T* to = data_of<T>(y);
      auto* pass = data_of<uint8_t>(passes);
      for (int64_t i = 0; i < x.numel(); ++i) {
        const Wide<T> value = from[i];
        pass[i] = value > 0 ? 1 : 0;
        // What is no number stays so, and the loss shows it.
        to[i] = value <= 0 ? T(0) : from[i];
      }
    });
    saved.push_back(std::move(passes));
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/, const CallContext& /*call*/,
                      WeightWork* /*later*/) const override {
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      const auto* pass = data_of<uint8_t>(kept[0]);
      T* gradient = data_of<T>(dy);
      for (int64_t i = 0; i < dy.numel(); ++i) gradient[i] = pass[i] != 0 ? gradient[i] : T(0);
    });
    return dy;
  }
};

class Gelu final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/, const CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor y = empty_tensor_like(x);
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      activation_forward(shape_of(x), data_of<T>(x), static_cast<const T*>(nullptr), data_of<T>(y));
    });
    saved.push_back(x);
    return y;
  }
  size_t kept() const override { return 1; }

  // The kernel leaves its result where the input was, which nobody else reads any more.
  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/, const CallContext& /*call*/,
                      WeightWork* /*later*/) const override {
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      activation_backward(shape_of(dy), data_of<T>(kept[0]), static_cast<const T*>(nullptr),
                          data_of<T>(dy), static_cast<Wide<T>*>(nullptr));
    });
    return dy;
  }

 private:
  static ActivationShape shape_of(const at::Tensor& x) {
    return {.rows = x.size(0), .cols = x.numel() / x.size(0), .activation = Activation::kGelu};
  }
};

class Tanh final : public Operator {
 public:
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/, const CallContext& /*call*/,
                     Saved& saved) const override {
    at::Tensor y = empty_tensor_like(x);
    for_each(x, x, y, [](auto from, auto /*same*/) { return std::tanh(from); });
    saved.push_back(x);
    return y;
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool /*wanted*/, const CallContext& /*call*/,
                      WeightWork* /*later*/) const override {
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
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const T* first = data_of<T>(a);
      const T* second = data_of<T>(b);
      T* to = data_of<T>(y);
      for (int64_t i = 0; i < y.numel(); ++i) {
        to[i] = static_cast<T>(body(Wide<T>(first[i]), Wide<T>(second[i])));
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

}  // namespace smp
