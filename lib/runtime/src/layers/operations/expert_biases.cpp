#include "layers/operations/for_each_expert.h"
#include "layers/operations/kernels_of.h"

// Biases of experts, of all experts in one vector. The weight of a row applies to the bias of the
// second matrix: the other ones lie ahead of where rows are weighed.
namespace smp::layers {
namespace {

kernels::ExpertBias bias_of(const Frame& frame, size_t bias, size_t weights, int64_t cols,
                            int64_t expert, int64_t first, int64_t rows) {
  return {.bias = frame.has_in(bias) ? frame.in(bias).narrow(0, expert * cols, cols) : at::Tensor(),
          .weights = frame.in(weights),
          .places = frame.in(weights + 1),
          .first = first,
          .rows = rows};
}

}  // namespace

void add_expert_biases(const Frame& frame, const at::Tensor& y) {
  const kernels::ExpertFunctions& functions = kernels::functions_of(y).experts();
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    functions.add_bias(bias_of(frame, 3, 4, y.size(1), expert, first, rows), y);
  });
}

void run_expert_bias_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& d_weights = frame.in(5);
  const int64_t cols = dy.size(1);
  const kernels::ExpertFunctions& functions = kernels::functions_of(dy).experts();
  for_each_expert(frame.in(1), [&](int64_t expert, int64_t first, int64_t rows) {
    functions.bias_gradient(bias_of(frame, 2, 3, cols, expert, first, rows), dy,
                            frame.gradient(0).narrow(0, expert * cols, cols), d_weights);
  });
  if (frame.has_out(0)) frame.set_over(0, d_weights);
}

}  // namespace smp::layers
