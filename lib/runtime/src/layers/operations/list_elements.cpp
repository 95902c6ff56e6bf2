#include <cmath>

#include "kernels/element_types.h"
#include "layers/operations/kernels_of.h"

// ReLU and tanh of lists of layers, in any of the four types.
namespace smp::layers {
namespace {

// y = body(a, b), element by element.
template <typename Body>
void for_each(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y, const Body& body) {
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

}  // namespace

void run_relu(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make_or_over(0, 0);
  const at::Tensor& passes = frame.make(1);
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
}

void run_relu_backward(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    const auto* pass = kernels::data_of<uint8_t>(frame.in(1));
    T* gradient = kernels::data_of<T>(dy);
    for (int64_t i = 0; i < dy.numel(); ++i) gradient[i] = pass[i] != 0 ? gradient[i] : T(0);
  });
  frame.set_over(0, dy);
}

void run_tanh(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  for_each(x, x, frame.make(0), [](auto from, auto /*same*/) { return std::tanh(from); });
}

void run_tanh_backward(Frame& frame) {
  const at::Tensor& dy = frame.in(1);
  for_each(frame.in(0), dy, dy, [](auto from, auto gradient) {
    const auto y = std::tanh(from);
    return gradient * (1 - y * y);
  });
  frame.set_over(0, dy);
}

}  // namespace smp::layers
