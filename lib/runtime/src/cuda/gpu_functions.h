#pragma once

#include "cuda/gpu_attention.h"
#include "cuda/gpu_experts.h"
#include "cuda/launches.h"
#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "kernels/mean_loss.h"
#include "ledger/tensor_factories.h"

namespace smp::cuda {

// The functions of a GPU. A Runner runs the kernels' bodies (launches.h); torch computes products.
// Tests run the whole class on CPU tensors, with a Runner of host threads.
template <typename Runner>
class GpuFunctions final : public kernels::DeviceFunctions {
 public:
  // 64 MiB of fp32 scores keep a GPU busy, and are small compared with a microbatch's activations.
  static constexpr int64_t kScoreElements = 16 << 20;

  explicit GpuFunctions(Runner runner, int64_t score_elements = kScoreElements)
      : runner_(std::move(runner)), experts_(runner_), score_elements_(score_elements) {}

  void norm_forward(const kernels::NormShape& shape, double epsilon, const at::Tensor& x,
                    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& y,
                    const at::Tensor& stats) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_forward(shape, static_cast<kernels::Wide<T>>(epsilon),
                                 kernels::data_of<T>(x), kernels::data_of<T>(weight),
                                 kernels::data_of<T>(bias), kernels::data_of<T>(y),
                                 kernels::data_of<kernels::Wide<T>>(stats));
    });
  }

  void norm_apply(const kernels::NormShape& shape, const at::Tensor& x, const at::Tensor& stats,
                  const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& y) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_apply(
          shape, kernels::data_of<T>(x), kernels::data_of<kernels::Wide<T>>(stats),
          kernels::data_of<T>(weight), kernels::data_of<T>(bias), kernels::data_of<T>(y));
    });
  }

  void norm_backward(const kernels::NormShape& shape, const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& stats, const at::Tensor& weight, const at::Tensor& residual,
                     const at::Tensor& weight_gradient,
                     const at::Tensor& bias_gradient) const override {
    const at::Tensor scratch = sums_scratch(x, shape.rows, shape.cols);
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().norm_backward(shape, kernels::data_of<T>(dy), kernels::data_of<T>(x),
                                  kernels::data_of<kernels::Wide<T>>(stats),
                                  kernels::data_of<T>(weight), kernels::data_of<T>(residual),
                                  kernels::data_of<T>(dy),
                                  kernels::data_of<kernels::Wide<T>>(weight_gradient),
                                  kernels::data_of<kernels::Wide<T>>(bias_gradient),
                                  kernels::data_of<kernels::Wide<T>>(scratch));
    });
  }

  void activation_forward(const kernels::ActivationShape& shape, const at::Tensor& u,
                          const at::Tensor& bias, const at::Tensor& y) const override {
    kernels::with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_forward(shape, kernels::data_of<T>(u), kernels::data_of<T>(bias),
                                       kernels::data_of<T>(y));
    });
  }

  void activation_backward(const kernels::ActivationShape& shape, const at::Tensor& u,
                           const at::Tensor& bias, const at::Tensor& dy,
                           const at::Tensor& bias_gradient) const override {
    at::Tensor scratch;
    if (bias.defined()) scratch = sums_scratch(u, shape.rows, u.size(1));
    kernels::with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_backward(shape, kernels::data_of<T>(u), kernels::data_of<T>(bias),
                                        kernels::data_of<T>(dy),
                                        kernels::data_of<kernels::Wide<T>>(bias_gradient),
                                        kernels::data_of<kernels::Wide<T>>(scratch));
    });
  }

  void attention_forward(const kernels::AttentionShape& shape,
                         const kernels::AttentionInputs& inputs, const at::Tensor& output,
                         const at::Tensor& log_sums) const override {
    kernels::with_element_type(output, [&](auto zero) {
      attention<decltype(zero)>(shape, inputs).forward(output, log_sums);
    });
  }

  void attention_backward(const kernels::AttentionShape& shape,
                          const kernels::AttentionInputs& inputs, const at::Tensor& output,
                          const at::Tensor& output_gradient, const at::Tensor& log_sums,
                          const kernels::AttentionGradients& gradients) const override {
    kernels::with_element_type(output, [&](auto zero) {
      attention<decltype(zero)>(shape, inputs)
          .backward(output, output_gradient, log_sums, gradients);
    });
  }

  void latent_heads(const program::LatentAttributes& widths, const at::Tensor& q,
                    const at::Tensor& kv, const at::Tensor& k_rotary,
                    const at::Tensor& packed) const override {
    kernels::with_element_type(packed, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().latent_heads(widths, packed.size(0), kernels::data_of<T>(q),
                                 kernels::data_of<T>(kv), kernels::data_of<T>(k_rotary),
                                 kernels::data_of<T>(packed));
    });
  }

  void latent_heads_backward(const program::LatentAttributes& widths, const at::Tensor& packed,
                             const at::Tensor& q, const at::Tensor& kv,
                             const at::Tensor& k_rotary) const override {
    kernels::with_element_type(packed, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().latent_heads_backward(widths, packed.size(0), kernels::data_of<T>(packed),
                                          kernels::data_of<T>(q), kernels::data_of<T>(kv),
                                          kernels::data_of<T>(k_rotary));
    });
  }

  void qk_squares(const program::QkNormAttributes& norm, const at::Tensor& x,
                  const at::Tensor& squares) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().qk_squares(norm, x.size(0), x.size(1), kernels::data_of<T>(x),
                               kernels::data_of<kernels::Wide<T>>(squares));
    });
  }

  void qk_norm(const program::QkNormAttributes& norm, const at::Tensor& x,
               const at::Tensor& squares, const kernels::QkNormTensors& weights,
               const at::Tensor& y) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().qk_norm(norm, x.size(0), x.size(1), kernels::data_of<T>(x),
                            kernels::data_of<kernels::Wide<T>>(squares), pointers_of<T>(weights),
                            kernels::data_of<T>(y));
    });
  }

  void qk_norm_sums(const program::QkNormAttributes& norm, const at::Tensor& dy,
                    const at::Tensor& x, const at::Tensor& squares,
                    const kernels::QkNormTensors& weights, const kernels::QkNormTensors& gradients,
                    const at::Tensor& sums) const override {
    const at::Tensor scratch = sums_scratch(x, x.size(0), std::max(norm.q_cols, norm.k_cols));
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      using C = kernels::Wide<T>;
      launches<T>().qk_norm_sums(norm, x.size(0), x.size(1), kernels::data_of<T>(dy),
                                 kernels::data_of<T>(x), kernels::data_of<C>(squares),
                                 pointers_of<T>(weights), kernels::data_of<C>(gradients.q),
                                 kernels::data_of<C>(gradients.k), kernels::data_of<C>(sums),
                                 kernels::data_of<C>(scratch));
    });
  }

  void qk_norm_backward(const program::QkNormAttributes& norm, const at::Tensor& dy,
                        const at::Tensor& x, const at::Tensor& squares, const at::Tensor& sums,
                        const kernels::QkNormTensors& weights) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      using C = kernels::Wide<T>;
      launches<T>().qk_norm_backward(norm, x.size(0), x.size(1), kernels::data_of<T>(dy),
                                     kernels::data_of<T>(x), kernels::data_of<C>(squares),
                                     kernels::data_of<C>(sums), pointers_of<T>(weights));
    });
  }

  const kernels::ExpertFunctions& experts() const override { return experts_; }

  void drop(const kernels::Dropout& dropout, const at::Tensor& x,
            const at::Tensor& y) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = x.size(-1);
      launches<T>().drop(dropout, x.numel() / cols, cols, kernels::data_of<T>(x),
                         kernels::data_of<T>(y));
    });
  }

  void add_residual(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const kernels::Dropout& dropout) const override {
    kernels::with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.size(0), cols = y.size(1);
      if (dropout.is_on()) {
        return launches<T>().add_residual_dropped(dropout, rows, cols, kernels::data_of<T>(x),
                                                  kernels::data_of<T>(bias),
                                                  kernels::data_of<T>(y));
      }
      launches<T>().add_residual(rows, cols, kernels::data_of<T>(x), kernels::data_of<T>(bias),
                                 kernels::data_of<T>(y));
    });
  }

  // As two kernels.
  void sum_and_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const kernels::Dropout& dropout, const kernels::NormShape& shape,
                    double epsilon, const at::Tensor& weight, const at::Tensor& norm_bias,
                    const at::Tensor& normed, const at::Tensor& stats) const override {
    add_residual(x, bias, y, dropout);
    norm_forward(shape, epsilon, y, weight, norm_bias, normed, stats);
  }

  void add_column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    const at::Tensor scratch = sums_scratch(x, x.size(0), x.size(1));
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().add_column_sums(x.size(0), x.size(1), x.stride(0), kernels::data_of<T>(x),
                                    kernels::data_of<kernels::Wide<T>>(sums),
                                    kernels::data_of<kernels::Wide<T>>(scratch));
    });
  }

  void accumulate(const at::Tensor& x, const at::Tensor& sums) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().accumulate(x.numel(), kernels::data_of<T>(x),
                               kernels::data_of<kernels::Wide<T>>(sums));
    });
  }

  void take_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& table,
                 const at::Tensor& y) const override {
    kernels::with_element_type(table, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().take_rows(ids.numel(), table.size(1), begin, table.size(0),
                              kernels::data_of<int64_t>(ids), kernels::data_of<T>(table),
                              kernels::data_of<T>(y));
    });
  }

  void add_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& x,
                const at::Tensor& table) const override {
    const auto [sorted, order] = ids.sort(/*stable=*/std::optional(true), /*dim=*/0);
    const int64_t *values = kernels::data_of<int64_t>(sorted),
                  *places = kernels::data_of<int64_t>(order);
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().add_rows(ids.numel(), table.size(1), begin, table.size(0), values, places,
                             kernels::data_of<T>(x), kernels::data_of<kernels::Wide<T>>(table));
    });
  }

  double softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                      const kernels::SoftmaxStatistics& statistics,
                      const kernels::SoftmaxExchange& exchange,
                      bool makes_gradient) const override {
    const LogitRows shape = shape_of(logits, targets, begin);
    const int64_t rows = shape.rows;
    kernels::with_element_type(logits, [&](auto zero) {
      using T = decltype(zero);
      auto *maxima = kernels::data_of<kernels::Wide<T>>(statistics.maxima),
           *sums = kernels::data_of<kernels::Wide<T>>(statistics.sums);
      launches<T>().softmax_sums(shape, kernels::data_of<T>(logits), maxima, sums, sums + rows);
      if (exchange) exchange(statistics.maxima, comm::ReduceOp::kMax);
      launches<T>().finish_softmax_sums(shape, kernels::data_of<T>(logits), maxima, sums,
                                        sums + rows);
    });
    if (exchange) exchange(statistics.sums, comm::ReduceOp::kSum);
    if (makes_gradient && !kernels::is_narrow(logits)) {
      softmax_gradient(logits, targets, begin, statistics, 1);
    }
    const at::Tensor here = statistics.sums.to(at::kCPU), rights = targets.to(at::kCPU);
    const auto* right = kernels::data_of<int64_t>(rights);
    return here.scalar_type() == at::kDouble
               ? kernels::mean_loss(rows, kernels::data_of<double>(here), right)
               : kernels::mean_loss(rows, kernels::data_of<float>(here), right);
  }

  void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                        const kernels::SoftmaxStatistics& statistics, double scale) const override {
    kernels::with_element_type(logits, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().softmax_gradient(
          shape_of(logits, targets, begin), kernels::data_of<kernels::Wide<T>>(statistics.maxima),
          kernels::data_of<kernels::Wide<T>>(statistics.sums),
          static_cast<kernels::Wide<T>>(scale / static_cast<double>(logits.size(0))),
          kernels::data_of<T>(logits));
    });
  }

  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override {
    const int64_t depth = a.size(1), whole = whole_strips(a, depth);
    if (whole == 0 || whole == depth) return a.mm(b.t());
    at::Tensor y = a.narrow(1, whole, depth - whole).mm(b.narrow(1, whole, depth - whole).t());
    return y.addmm_(a.narrow(1, 0, whole), b.narrow(1, 0, whole).t());
  }

  // Vocabularies often have an odd size. If rows are not aligned, or have an odd number of
  // elements, cuBLAS uses kernels for older GPUs. So each row of the logits begins at a multiple of
  // 16 bytes, and the last few columns are a separate product, here and in both products of the
  // gradient. torch passes the stride to cuBLAS and copies nothing.
  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override {
    const int64_t cols = weight.size(0), whole = whole_strips(x, cols);
    const int64_t stride = whole_strips(x, cols + kStripBytes / x.element_size() - 1);
    const at::Tensor y = ledger::empty_tensor({x.size(0), stride}, x.options()).narrow(1, 0, cols);
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
    if (!kernels::is_narrow(dy)) {
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

  void adamw_update(const kernels::AdamWFactors& factors,
                    const kernels::UpdateRange<float>& range) const override {
    FlatLaunches<Runner, float>(runner_).adamw_update(factors, range);
  }
  void adamw_update(const kernels::AdamWFactors& factors,
                    const kernels::UpdateRange<double>& range) const override {
    FlatLaunches<Runner, double>(runner_).adamw_update(factors, range);
  }
  void sgd_update(const kernels::SgdFactors& factors,
                  const kernels::UpdateRange<float>& range) const override {
    FlatLaunches<Runner, float>(runner_).sgd_update(factors, range);
  }
  void sgd_update(const kernels::SgdFactors& factors,
                  const kernels::UpdateRange<double>& range) const override {
    FlatLaunches<Runner, double>(runner_).sgd_update(factors, range);
  }

  int64_t count_square_sums(const kernels::FlatRange& range) const override {
    return FlatLaunches<Runner, float>::count_partials(range.count);
  }
  void sum_squares(const at::Tensor& values, const std::vector<kernels::FlatRange>& ranges,
                   const at::Tensor& sums) const override {
    double* const to = kernels::data_of<double>(sums);
    if (values.scalar_type() == at::kDouble) {
      FlatLaunches<Runner, double>(runner_).sum_squares(kernels::data_of<double>(values), ranges,
                                                        to);
    } else {
      FlatLaunches<Runner, float>(runner_).sum_squares(kernels::data_of<float>(values), ranges, to);
    }
  }

 private:
  // `elements` rounded down to a multiple of 16 bytes.
  static int64_t whole_strips(const at::Tensor& x, int64_t elements) {
    const int64_t unit = kStripBytes / x.element_size();
    return elements / unit * unit;
  }
  template <typename T>
  Launches<Runner, T> launches() const {
    return Launches<Runner, T>(runner_);
  }
  template <typename T>
  GpuAttention<Runner, T> attention(const kernels::AttentionShape& shape,
                                    const kernels::AttentionInputs& inputs) const {
    return {runner_, shape, inputs, score_elements_};
  }
  template <typename T>
  static QkWeightPointers<T> pointers_of(const kernels::QkNormTensors& weights) {
    return {kernels::data_of<T>(weights.q), kernels::data_of<T>(weights.k)};
  }
  static LogitRows shape_of(const at::Tensor& logits, const at::Tensor& targets, int64_t begin) {
    return {logits.size(0), logits.size(1), logits.stride(0), begin,
            kernels::data_of<int64_t>(targets)};
  }
  static at::Tensor sums_scratch(const at::Tensor& like, int64_t rows, int64_t cols) {
    return ledger::empty_tensor({Launches<Runner, float>::column_sums_scratch(rows, cols)},
                                kernels::wide_options(like));
  }

  const Runner runner_;
  const GpuExperts<Runner> experts_;
  const int64_t score_elements_;
};

}  // namespace smp::cuda
