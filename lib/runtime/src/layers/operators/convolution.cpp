#include <algorithm>

#include "kernels/image_kernels.h"
#include "layers/operators/operator.h"
#include "layers/run_or_defer.h"
#include "ledger/tensor_factories.h"

namespace smp::layers {
namespace {

// Samples go through the product in groups (samples_at_once()), as rows of patches; outputs and
// their gradients are turned between [channels, pixels] and [pixels, channels].
class Convolution final : public Operator {
 public:
  Convolution(const model::PlacedOperator& placed, const ParallelMatrix& matrix)
      : matrix_(matrix), channels_(placed.out[0]) {
    shape_ = {.channels = placed.in[0],
              .height = placed.in[1],
              .width = placed.in[2],
              .kernel = placed.spec.kernel,
              .stride = placed.spec.stride,
              .padding = placed.spec.padding,
              .out_height = placed.out[1],
              .out_width = placed.out[2]};
  }

  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& saved) const override {
    at::Tensor y = ledger::empty_tensor({x.size(0), channels_, shape_.out_height, shape_.out_width},
                                        x.options());
    const at::Tensor bias = matrix_.bias();
    for_each_group(x, [&](int64_t first, int64_t count) {
      const at::Tensor rows = matrix_.linear.forward(patches(x, first, count));
      kernels::with_element_type(x, [&](auto zero) {
        using T = decltype(zero);
        kernels::channels_first(count, channels_, shape_.windows(), kernels::data_of<T>(rows),
                                kernels::data_of<T>(bias), output_of<T>(y, first));
      });
    });
    saved.push_back(x);
    return matrix_.behind.summed(std::move(y), "tensor.forward");
  }
  size_t kept() const override { return 1; }

  at::Tensor backward(Saved kept, at::Tensor dy, bool wanted, const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* deferred) const override {
    const at::Tensor x = std::move(kept[0]);
    kept.clear();
    at::Tensor dx;
    if (wanted) {
      dx = ledger::empty_tensor(x.sizes(), x.options());
      const at::Tensor sums = empty_sums(x, shape_.elements());
      for_each_group(x, [&](int64_t first, int64_t count) {
        const at::Tensor of_patches = matrix_.linear.input_gradient(rows_of(dy, first, count));
        kernels::with_element_type(x, [&](auto zero) {
          using T = decltype(zero);
          sum_patches(shape_, count, kernels::data_of<T>(of_patches),
                      kernels::data_of<T>(dx) + first * shape_.elements(),
                      kernels::data_of<kernels::Wide<T>>(sums));
        });
      });
    }
    kernels::TensorRegion::Sum sum;
    if (wanted) sum = matrix_.before.start_sum(std::move(dx), "tensor.backward");
    run_or_defer(deferred, [this, x, dy = std::move(dy)] {
      for_each_group(x, [&](int64_t first, int64_t count) {
        const at::Tensor rows = rows_of(dy, first, count);
        matrix_.linear.add_bias_gradient(rows);
        matrix_.linear.add_weight_gradient(rows, patches(x, first, count));
      });
    });
    return sum.wait();
  }

 private:
  template <typename Body>
  void for_each_group(const at::Tensor& x, const Body& body) const {
    const int64_t samples = x.size(0);
    const int64_t step = model::samples_at_once(samples, shape_.windows());
    for (int64_t first = 0; first < samples; first += step) {
      body(first, std::min(step, samples - first));
    }
  }

  at::Tensor patches(const at::Tensor& x, int64_t first, int64_t count) const {
    at::Tensor rows = ledger::empty_tensor({count * shape_.windows(), shape_.patch()}, x.options());
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      copy_patches(shape_, count, kernels::data_of<T>(x) + first * shape_.elements(),
                   kernels::data_of<T>(rows));
    });
    return rows;
  }

  at::Tensor rows_of(const at::Tensor& dy, int64_t first, int64_t count) const {
    at::Tensor rows = ledger::empty_tensor({count * shape_.windows(), channels_}, dy.options());
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      kernels::channels_last(count, channels_, shape_.windows(), output_of<T>(dy, first),
                             kernels::data_of<T>(rows));
    });
    return rows;
  }

  template <typename T>
  T* output_of(const at::Tensor& y, int64_t sample) const {
    return kernels::data_of<T>(y) + sample * channels_ * shape_.windows();
  }

  const ParallelMatrix matrix_;
  const int64_t channels_;
  kernels::PatchShape shape_;
};

}  // namespace

OperatorPtr make_convolution(const model::PlacedOperator& placed, const ParallelMatrix& matrix) {
  return std::make_unique<Convolution>(placed, matrix);
}

}  // namespace smp::layers
