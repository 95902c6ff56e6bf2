#include "layers/operations/kernels_of.h"

// Norms of queries and keys over all heads.
namespace smp::layers {
namespace {

const program::QkNormAttributes& norm_of(const Frame& frame) {
  return frame.as<program::QkNormAttributes>();
}

// The operands `first` and the one behind it.
kernels::QkNormTensors weights_of(const Frame& frame, size_t first) {
  return {frame.in(first), frame.in(first + 1)};
}

}  // namespace

void run_qk_squares(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  kernels::functions_of(x).qk_squares(norm_of(frame), x, frame.make(0));
}

void run_qk_norm(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  kernels::functions_of(x).qk_norm(norm_of(frame), x, frame.in(1), weights_of(frame, 2),
                                   frame.make(0));
}

void run_qk_norm_sums(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::functions_of(dy).qk_norm_sums(norm_of(frame), dy, frame.in(1), frame.in(2),
                                         weights_of(frame, 3),
                                         {frame.gradient(0), frame.gradient(1)}, frame.make(0));
}

void run_qk_norm_backward(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::functions_of(dy).qk_norm_backward(norm_of(frame), dy, frame.in(1), frame.in(2),
                                             frame.in(3), weights_of(frame, 4));
  frame.set_over(0, dy);
}

}  // namespace smp::layers
