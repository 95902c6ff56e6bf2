#include "kernels/qk_norms.h"

#include "kernels/element_types.h"
#include "layers/operations/kernels_of.h"

// Norms of queries and keys over all heads.
namespace smp::layers {
namespace {

const program::QkNormAttributes& norm_of(const Frame& frame) {
  return frame.as<program::QkNormAttributes>();
}

// The operands `first` and the one behind it.
template <typename T>
class Weights {
 public:
  Weights(const Frame& frame, size_t first)
      : q_(vector(frame.in(first))), k_(vector(frame.in(first + 1))) {}

  kernels::QkWeights<kernels::Wide<T>> given() const { return {q_.data(), k_.data()}; }

 private:
  static kernels::WideVector<T> vector(const at::Tensor& weight) {
    return {weight.numel(), kernels::data_of<T>(weight)};
  }

  kernels::WideVector<T> q_, k_;
};

}  // namespace

void run_qk_squares(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& squares = frame.make(0);
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::qk_squares(norm_of(frame), x.size(0), x.size(1),
                        static_cast<const T*>(kernels::data_of<T>(x)),
                        kernels::data_of<kernels::Wide<T>>(squares));
  });
}

void run_qk_norm(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const Weights<T> weights(frame, 2);
    kernels::qk_norm(
        norm_of(frame), x.size(0), x.size(1), static_cast<const T*>(kernels::data_of<T>(x)),
        kernels::data_of<kernels::Wide<T>>(frame.in(1)), weights.given(), kernels::data_of<T>(y));
  });
}

void run_qk_norm_sums(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& sums = frame.make(0);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    const Weights<T> weights(frame, 3);
    kernels::QkWeights<C> given = weights.given();
    given.q_gradient = kernels::data_of<C>(frame.gradient(0));
    given.k_gradient = kernels::data_of<C>(frame.gradient(1));
    kernels::qk_norm_sums(norm_of(frame), dy.size(0), dy.size(1),
                          static_cast<const T*>(kernels::data_of<T>(dy)),
                          static_cast<const T*>(kernels::data_of<T>(frame.in(1))),
                          kernels::data_of<C>(frame.in(2)), given, kernels::data_of<C>(sums));
  });
}

void run_qk_norm_backward(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    const Weights<T> weights(frame, 4);
    kernels::qk_norm_backward(norm_of(frame), dy.size(0), dy.size(1), kernels::data_of<T>(dy),
                              static_cast<const T*>(kernels::data_of<T>(frame.in(1))),
                              kernels::data_of<C>(frame.in(2)), kernels::data_of<C>(frame.in(3)),
                              weights.given());
  });
  frame.set_over(0, dy);
}

}  // namespace smp::layers
