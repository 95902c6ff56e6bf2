#include "layers/operations/for_each_expert.h"
#include "layers/operations/kernels_of.h"

// Mixture of experts (kernels/expert_functions.h).
namespace smp::layers {
namespace {

const program::ExpertAttributes& experts_of(const Frame& frame) {
  return frame.as<program::ExpertAttributes>();
}

// The matrix of one of the experts whose matrices lie in `all`.
at::Tensor matrix_of(const at::Tensor& all, int64_t expert, int64_t experts) {
  const int64_t rows = all.size(0) / experts;
  return all.narrow(0, expert * rows, rows);
}

kernels::ExpertRows rows_of(const Frame& frame) {
  return {.up = frame.in(0),
          .gate = frame.in(1),
          .weights = frame.in(2),
          .places = frame.in(3),
          .count = frame.has_in(4) ? used_rows(frame.in(4)) : frame.in(0).size(0)};
}

}  // namespace

void run_sort_by_expert(Frame& frame) {
  const at::Tensor& chosen = frame.in(0);
  const at::Tensor& rows = frame.make(0);
  const at::Tensor& places = frame.make(2);
  frame.set(1, kernels::functions_of(chosen).experts().sort_by_expert(experts_of(frame), chosen,
                                                                      rows, places));
}

void run_dispatch(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  kernels::functions_of(x).experts().dispatch(x, frame.in(1), used_rows(frame.in(2)),
                                              experts_of(frame).per_token, y);
}

void run_combine(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  kernels::functions_of(x).experts().combine(x, frame.in(1), frame.make(0));
}

void run_expert_product(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& y = frame.make(0);
  const kernels::ExpertFunctions& functions = kernels::functions_of(x).experts();
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    functions.product(x, matrix_of(weight, expert, experts_of(frame).count), first, rows, y);
  });
  if (frame.has_in(3)) add_expert_biases(frame, y);
}

void run_expert_input_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& dx = frame.make(0);
  const kernels::ExpertFunctions& functions = kernels::functions_of(dy).experts();
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    functions.product(dy, matrix_of(weight, expert, experts_of(frame).count).t(), first, rows, dx);
  });
}

void run_expert_weight_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& x = frame.in(1);
  const kernels::ExpertFunctions& functions = kernels::functions_of(dy).experts();
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    functions.add_product(dy, x, first, rows,
                          matrix_of(frame.gradient(0), expert, experts_of(frame).count));
  });
}

void run_expert_activation(Frame& frame) {
  const at::Tensor& y = frame.make(0);
  kernels::functions_of(y).experts().activation_forward(experts_of(frame).activation,
                                                        rows_of(frame), y);
}

void run_expert_activation_backward(Frame& frame) {
  const kernels::ExpertRows rows = rows_of(frame);
  const at::Tensor& dy = frame.in(5);
  at::Tensor d_weights;
  if (frame.has_out(3)) d_weights = frame.make_zero(3);
  kernels::functions_of(dy).experts().activation_backward(experts_of(frame).activation, rows, dy,
                                                          d_weights);
  frame.set_over(0, rows.up);
  if (rows.gate.defined()) frame.set_over(1, rows.gate);
  frame.set_over(2, dy);
}

}  // namespace smp::layers
