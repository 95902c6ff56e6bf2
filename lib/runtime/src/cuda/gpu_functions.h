#pragma once

#include "cuda/gpu_attention.h"
#include "cuda/launches.h"
#include "functions/device_functions.h"
#include "functions/element_types.h"
#include "functions/mean_loss.h"
#include "new_tensors.h"

namespace smp::cuda {

// The functions of a GPU: bodies run by a Runner (launches.h), products by torch. In a test the
// Runner has host threads and the tensors are the CPU's, and all of this class runs.
template <typename Runner>
class GpuFunctions final : public DeviceFunctions {
 public:
  // 64 MiB of fp32 scores: enough to keep a GPU busy, little beside a microbatch's activations.
  static constexpr int64_t kScoreElements = 16 << 20;

  explicit GpuFunctions(Runner runner, int64_t score_elements = kScoreElements)
      : runner_(std::move(runner)), score_elements_(score_elements) {}

  void norm_forward(const NormShape& shape, double epsilon, const at::Tensor& x,
                    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& y,
                    const at::Tensor& stats) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_forward(shape, static_cast<Wide<T>>(epsilon), data_of<T>(x),
                                 data_of<T>(weight), data_of<T>(bias), data_of<T>(y),
                                 data_of<Wide<T>>(stats));
    });
  }

  void norm_apply(const NormShape& shape, const at::Tensor& x, const at::Tensor& stats,
                  const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_apply(shape, data_of<T>(x), data_of<Wide<T>>(stats), data_of<T>(weight),
                               data_of<T>(bias), data_of<T>(y));
    });
  }

  void norm_backward(const NormShape& shape, const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& stats, const at::Tensor& weight, const at::Tensor& residual,
                     const at::Tensor& weight_gradient,
                     const at::Tensor& bias_gradient) const override {
    const at::Tensor scratch = sums_scratch(x, shape.rows, shape.cols);
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_backward(shape, data_of<T>(dy), data_of<T>(x), data_of<Wide<T>>(stats),
                                  data_of<T>(weight), data_of<T>(residual), data_of<T>(dy),
                                  data_of<Wide<T>>(weight_gradient),
                                  data_of<Wide<T>>(bias_gradient), data_of<Wide<T>>(scratch));
    });
  }

  void activation_forward(const ActivationShape& shape, const at::Tensor& u, const at::Tensor& bias,
                          const at::Tensor& y) const override {
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_forward(shape, data_of<T>(u), data_of<T>(bias), data_of<T>(y));
    });
  }

  void activation_backward(const ActivationShape& shape, const at::Tensor& u,
                           const at::Tensor& bias, const at::Tensor& dy,
                           const at::Tensor& bias_gradient) const override {
    at::Tensor scratch;
    if (bias.defined()) scratch = sums_scratch(u, shape.rows, u.size(1));
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_backward(shape, data_of<T>(u), data_of<T>(bias), data_of<T>(dy),
                                        data_of<Wide<T>>(bias_gradient), data_of<Wide<T>>(scratch));
    });
  }

  void attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                         const at::Tensor& output, const at::Tensor& log_sums) const override {
    with_element_type(output, [&](auto zero) {
      attention<decltype(zero)>(shape, inputs).forward(output, log_sums);
    });
  }

  void attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                          const at::Tensor& output, const at::Tensor& output_gradient,
                          const at::Tensor& log_sums,
                          const AttentionGradients& gradients) const override {
    with_element_type(output, [&](auto zero) {
      attention<decltype(zero)>(shape, inputs)
          .backward(output, output_gradient, log_sums, gradients);
    });
  }

  void drop(const Dropout& dropout, const at::Tensor& x, const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = x.size(-1);
      launches<T>().drop(dropout, x.numel() / cols, cols, data_of<T>(x), data_of<T>(y));
    });
  }

  void add_residual(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const Dropout& dropout) const override {
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.size(0), cols = y.size(1);
      if (dropout.is_on()) {
        return launches<T>().add_residual_dropped(dropout, rows, cols, data_of<T>(x),
                                                  data_of<T>(bias), data_of<T>(y));
      }
      launches<T>().add_residual(rows, cols, data_of<T>(x), data_of<T>(bias), data_of<T>(y));
    });
  }

  void add_column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    const at::Tensor scratch = sums_scratch(x, x.size(0), x.size(1));
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().add_column_sums(x.size(0), x.size(1), x.stride(0), data_of<T>(x),
                                    data_of<Wide<T>>(sums), data_of<Wide<T>>(scratch));
    });
  }

  void accumulate(const at::Tensor& x, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().accumulate(x.numel(), data_of<T>(x), data_of<Wide<T>>(sums));
    });
  }

  void take_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& table,
                 const at::Tensor& y) const override {
    with_element_type(table, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().take_rows(ids.numel(), table.size(1), begin, table.size(0),
                              data_of<int64_t>(ids), data_of<T>(table), data_of<T>(y));
    });
  }

  void add_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& x,
                const at::Tensor& table) const override {
    const auto [sorted, order] = ids.sort(/*stable=*/std::optional(true), /*dim=*/0);
    const int64_t *values = data_of<int64_t>(sorted), *places = data_of<int64_t>(order);
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().add_rows(ids.numel(), table.size(1), begin, table.size(0), values, places,
                             data_of<T>(x), data_of<Wide<T>>(table));
    });
  }

  double softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                      const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                      bool makes_gradient) const override {
    const LogitRows shape = shape_of(logits, targets, begin);
    const int64_t rows = shape.rows;
    with_element_type(logits, [&](auto zero) {
      using T = decltype(zero);
      auto *maxima = data_of<Wide<T>>(statistics.maxima), *sums = data_of<Wide<T>>(statistics.sums);
      launches<T>().softmax_sums(shape, data_of<T>(logits), maxima, sums, sums + rows);
      if (exchange) exchange(statistics.maxima, ReduceOp::kMax);
      launches<T>().finish_softmax_sums(shape, data_of<T>(logits), maxima, sums, sums + rows);
    });
    if (exchange) exchange(statistics.sums, ReduceOp::kSum);
    if (makes_gradient && !is_narrow(logits)) {
      softmax_gradient(logits, targets, begin, statistics, 1);
    }
    const at::Tensor here = statistics.sums.to(at::kCPU), rights = targets.to(at::kCPU);
    const auto* right = data_of<int64_t>(rights);
    return here.scalar_type() == at::kDouble ? mean_loss(rows, data_of<double>(here), right)
                                             : mean_loss(rows, data_of<float>(here), right);
  }

  void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                        const SoftmaxStatistics& statistics, double scale) const override {
    with_element_type(logits, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().softmax_gradient(
          shape_of(logits, targets, begin), data_of<Wide<T>>(statistics.maxima),
          data_of<Wide<T>>(statistics.sums),
          static_cast<Wide<T>>(scale / static_cast<double>(logits.size(0))), data_of<T>(logits));
    });
  }

  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override {
    const int64_t depth = a.size(1), whole = whole_strips(a, depth);
    if (whole == 0 || whole == depth) return a.mm(b.t());
    at::Tensor y = a.narrow(1, whole, depth - whole).mm(b.narrow(1, whole, depth - whole).t());
    return y.addmm_(a.narrow(1, 0, whole), b.narrow(1, 0, whole).t());
  }

  // A vocabulary is often odd, and where rows begin anywhere, or have an odd number of elements,
  // cuBLAS multiplies with kernels of older GPUs. So each row of the logits begins at a multiple of
  // 16 bytes, and the last few of them are multiplied by themselves, here and in both products of
  // the gradient. torch hands cuBLAS the stride, and copies nothing.
  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override {
    const int64_t cols = weight.size(0), whole = whole_strips(x, cols);
    const int64_t stride = whole_strips(x, cols + kStripBytes / x.element_size() - 1);
    const at::Tensor y = empty_tensor({x.size(0), stride}, x.options()).narrow(1, 0, cols);
    const auto multiply = [&](int64_t begin, int64_t count) {
      if (count == 0) return;
      at::Tensor part = y.narrow(1, begin, count);
      part.addmm_(x, weight.narrow(0, begin, count).t(), /*beta=*/0);
    };
    multiply(0, whole);
    multiply(whole, cols - whole);
    return y;
  }

  void add_product(const at::Tensor& dy, const at::Tensor& x, double scale,
                   const at::Tensor& gradient) const override {
    if (!is_narrow(dy)) {
      at::Tensor(gradient).addmm_(dy.t(), x, /*beta=*/1, scale);
      return;
    }
    const int64_t rows = dy.size(1), whole = whole_strips(dy, rows);
    const auto add = [&](int64_t begin, int64_t count) {
      if (count == 0) return;
      at::Tensor part = gradient.narrow(0, begin, count);
      part.add_(runner_.wide_product(dy.narrow(1, begin, count).t(), x), scale);
    };
    add(0, whole);
    add(whole, rows - whole);
  }

  void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range) const override {
    FlatLaunches<Runner, float>(runner_).adamw_update(factors, range);
  }
  void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range) const override {
    FlatLaunches<Runner, double>(runner_).adamw_update(factors, range);
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range) const override {
    FlatLaunches<Runner, float>(runner_).sgd_update(factors, range);
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range) const override {
    FlatLaunches<Runner, double>(runner_).sgd_update(factors, range);
  }

  int64_t count_square_sums(const FlatRange& range) const override {
    return FlatLaunches<Runner, float>::count_partials(range.count);
  }
  void sum_squares(const at::Tensor& values, const std::vector<FlatRange>& ranges,
                   const at::Tensor& sums) const override {
    double* const to = data_of<double>(sums);
    if (values.scalar_type() == at::kDouble) {
      FlatLaunches<Runner, double>(runner_).sum_squares(data_of<double>(values), ranges, to);
    } else {
      FlatLaunches<Runner, float>(runner_).sum_squares(data_of<float>(values), ranges, to);
    }
  }

 private:
  // So many of `elements` as are whole multiples of 16 bytes.
  static int64_t whole_strips(const at::Tensor& x, int64_t elements) {
    const int64_t unit = kStripBytes / x.element_size();
    return elements / unit * unit;
  }
  template <typename T>
  Launches<Runner, T> launches() const {
    return Launches<Runner, T>(runner_);
  }
  template <typename T>
  GpuAttention<Runner, T> attention(const AttentionShape& shape,
                                    const AttentionInputs& inputs) const {
    return {runner_, shape, inputs, score_elements_};
  }
  static LogitRows shape_of(const at::Tensor& logits, const at::Tensor& targets, int64_t begin) {
    return {logits.size(0), logits.size(1), logits.stride(0), begin, data_of<int64_t>(targets)};
  }
  static at::Tensor sums_scratch(const at::Tensor& like, int64_t rows, int64_t cols) {
    return empty_tensor({Launches<Runner, float>::column_sums_scratch(rows, cols)},
                        wide_options(like));
  }

  const Runner runner_;
  const int64_t score_elements_;
};

}  // namespace smp::cuda
