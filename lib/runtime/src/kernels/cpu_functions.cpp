#include "kernels/cpu_functions.h"

#include <algorithm>

#include "kernels/adamw_kernel.h"
#include "kernels/cpu_experts.h"
#include "kernels/element_types.h"
#include "kernels/latent_heads.h"
#include "kernels/qk_norms.h"
#include "kernels/sgd_kernel.h"
#include "kernels/sum_of_squares.h"

namespace smp::kernels {
namespace {

// Calls body(n, row) for each of the ids' rows that the table has; n counts the ids, row is -1
// where it has not.
template <typename Body>
void for_each_row(const at::Tensor& ids, int64_t begin, int64_t rows, const Body& body) {
  const int64_t* id = ids.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < ids.numel(); ++n) {
    const int64_t row = id[n] - begin;
    body(n, row >= 0 && row < rows ? row : -1);
  }
}

// The weights of norms over all heads in the wide type.
template <typename T>
class WideQkWeights {
 public:
  explicit WideQkWeights(const QkNormTensors& weights)
      : q_(weights.q.numel(), data_of<T>(weights.q)),
        k_(weights.k.numel(), data_of<T>(weights.k)) {}

  QkWeights<Wide<T>> given() const { return {q_.data(), k_.data()}; }

 private:
  WideVector<T> q_, k_;
};

class CpuFunctions final : public DeviceFunctions {
 public:
  void norm_forward(const NormShape& shape, double epsilon, const at::Tensor& x,
                    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& y,
                    const at::Tensor& stats) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::norm_forward(shape, Wide<T>(epsilon), data_of<T>(x), data_of<T>(weight),
                            data_of<T>(bias), data_of<T>(y), data_of<Wide<T>>(stats));
    });
  }

  void norm_apply(const NormShape& shape, const at::Tensor& x, const at::Tensor& stats,
                  const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::norm_apply(shape, data_of<T>(x), data_of<Wide<T>>(stats), data_of<T>(weight),
                          data_of<T>(bias), data_of<T>(y));
    });
  }

  void norm_backward(const NormShape& shape, const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& stats, const at::Tensor& weight, const at::Tensor& residual,
                     const at::Tensor& weight_gradient,
                     const at::Tensor& bias_gradient) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::norm_backward(shape, data_of<T>(dy), data_of<T>(x), data_of<Wide<T>>(stats),
                             data_of<T>(weight), data_of<T>(residual), data_of<T>(dy),
                             data_of<Wide<T>>(weight_gradient), data_of<Wide<T>>(bias_gradient));
    });
  }

  void activation_forward(const ActivationShape& shape, const at::Tensor& u, const at::Tensor& bias,
                          const at::Tensor& y) const override {
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      kernels::activation_forward(shape, data_of<T>(u), data_of<T>(bias), data_of<T>(y));
    });
  }

  void activation_backward(const ActivationShape& shape, const at::Tensor& u,
                           const at::Tensor& bias, const at::Tensor& dy,
                           const at::Tensor& bias_gradient) const override {
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      kernels::activation_backward(shape, data_of<T>(u), data_of<T>(bias), data_of<T>(dy),
                                   data_of<Wide<T>>(bias_gradient));
    });
  }

  void attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                         const at::Tensor& output, const at::Tensor& log_sums) const override {
    cpu_attention_forward(shape, inputs, output, log_sums);
  }

  void attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                          const at::Tensor& output, const at::Tensor& output_gradient,
                          const at::Tensor& log_sums,
                          const AttentionGradients& gradients) const override {
    cpu_attention_backward(shape, inputs, output, output_gradient, log_sums, gradients);
  }

  void qk_squares(const program::QkNormAttributes& norm, const at::Tensor& x,
                  const at::Tensor& squares) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::qk_squares(norm, x.size(0), x.size(1), static_cast<const T*>(data_of<T>(x)),
                          data_of<Wide<T>>(squares));
    });
  }

  void qk_norm(const program::QkNormAttributes& norm, const at::Tensor& x,
               const at::Tensor& squares, const QkNormTensors& weights,
               const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const WideQkWeights<T> wide(weights);
      kernels::qk_norm(norm, x.size(0), x.size(1), static_cast<const T*>(data_of<T>(x)),
                       data_of<Wide<T>>(squares), wide.given(), data_of<T>(y));
    });
  }

  void qk_norm_sums(const program::QkNormAttributes& norm, const at::Tensor& dy,
                    const at::Tensor& x, const at::Tensor& squares, const QkNormTensors& weights,
                    const QkNormTensors& gradients, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      using C = Wide<T>;
      const WideQkWeights<T> wide(weights);
      QkWeights<C> given = wide.given();
      given.q_gradient = data_of<C>(gradients.q);
      given.k_gradient = data_of<C>(gradients.k);
      kernels::qk_norm_sums(norm, x.size(0), x.size(1), static_cast<const T*>(data_of<T>(dy)),
                            static_cast<const T*>(data_of<T>(x)), data_of<C>(squares), given,
                            data_of<C>(sums));
    });
  }

  void qk_norm_backward(const program::QkNormAttributes& norm, const at::Tensor& dy,
                        const at::Tensor& x, const at::Tensor& squares, const at::Tensor& sums,
                        const QkNormTensors& weights) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const WideQkWeights<T> wide(weights);
      kernels::qk_norm_backward(norm, x.size(0), x.size(1), data_of<T>(dy),
                                static_cast<const T*>(data_of<T>(x)), data_of<Wide<T>>(squares),
                                data_of<Wide<T>>(sums), wide.given());
    });
  }

  void latent_heads(const program::LatentAttributes& widths, const at::Tensor& q,
                    const at::Tensor& kv, const at::Tensor& k_rotary,
                    const at::Tensor& packed) const override {
    with_element_type(packed, [&](auto zero) {
      using T = decltype(zero);
      kernels::latent_heads(widths, packed.size(0), data_of<T>(q), data_of<T>(kv),
                            data_of<T>(k_rotary), data_of<T>(packed));
    });
  }

  void latent_heads_backward(const program::LatentAttributes& widths, const at::Tensor& packed,
                             const at::Tensor& q, const at::Tensor& kv,
                             const at::Tensor& k_rotary) const override {
    with_element_type(packed, [&](auto zero) {
      using T = decltype(zero);
      kernels::latent_heads_backward(widths, packed.size(0), data_of<T>(packed), data_of<T>(q),
                                     data_of<T>(kv), data_of<T>(k_rotary));
    });
  }

  const ExpertFunctions& experts() const override { return cpu_experts(); }

  void drop(const Dropout& dropout, const at::Tensor& x, const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = x.size(-1);
      kernels::drop(dropout, x.numel() / cols, cols, data_of<T>(x), data_of<T>(y));
    });
  }

  void add_residual(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const Dropout& dropout) const override {
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.size(0), cols = y.size(1);
      if (dropout.is_on()) {
        return add_residual_dropped(dropout, rows, cols, data_of<T>(x), data_of<T>(bias),
                                    data_of<T>(y));
      }
      kernels::add_residual(rows, cols, data_of<T>(x), data_of<T>(bias), data_of<T>(y));
    });
  }

  void sum_and_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const Dropout& dropout, const NormShape& shape, double epsilon,
                    const at::Tensor& weight, const at::Tensor& norm_bias, const at::Tensor& normed,
                    const at::Tensor& stats) const override {
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      kernels::sum_and_norm(shape, dropout, Wide<T>(epsilon), data_of<T>(x), data_of<T>(bias),
                            data_of<T>(y), data_of<T>(weight), data_of<T>(norm_bias),
                            data_of<T>(normed), data_of<Wide<T>>(stats));
    });
  }

  void add_column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::add_column_sums(x.size(0), x.size(1), data_of<T>(x), data_of<Wide<T>>(sums));
    });
  }

  void accumulate(const at::Tensor& x, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::accumulate(x.numel(), data_of<T>(x), data_of<Wide<T>>(sums));
    });
  }

  void take_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& table,
                 const at::Tensor& y) const override {
    with_element_type(table, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = table.size(1);
      const T* from = data_of<T>(table);
      T* to = data_of<T>(y);
      for_each_row(ids, begin, table.size(0), [&](int64_t n, int64_t row) {
        if (row < 0) {
          std::fill_n(to + n * cols, cols, T(0));
        } else {
          std::copy_n(from + row * cols, cols, to + n * cols);
        }
      });
    });
  }

  void add_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& x,
                const at::Tensor& table) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = table.size(1);
      const T* from = data_of<T>(x);
      auto* to = data_of<Wide<T>>(table);
      for_each_row(ids, begin, table.size(0), [&](int64_t n, int64_t row) {
        if (row >= 0) kernels::accumulate(cols, from + n * cols, to + row * cols);
      });
    });
  }

  at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const override {
    return cpu_product(x, weight);
  }

  double softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                      const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                      bool makes_gradient) const override {
    return cpu_softmax_loss(logits, targets, begin, statistics, exchange, makes_gradient);
  }

  void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                        const SoftmaxStatistics& statistics, double scale) const override {
    cpu_softmax_gradient(logits, targets, begin, statistics, scale);
  }

  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override {
    return cpu_product(a, b);
  }

  void add_product(const at::Tensor& dy, const at::Tensor& x, double scale,
                   const at::Tensor& gradient) const override {
    cpu_add_product(dy, x, scale, gradient);
  }

  void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range) const override {
    smp::kernels::adamw_update(factors, range);
  }
  void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range) const override {
    smp::kernels::adamw_update(factors, range);
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range) const override {
    smp::kernels::sgd_update(factors, range);
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range) const override {
    smp::kernels::sgd_update(factors, range);
  }

  int64_t count_square_sums(const FlatRange& /*range*/) const override { return 1; }
  void sum_squares(const at::Tensor& values, const std::vector<FlatRange>& ranges,
                   const at::Tensor& sums) const override {
    double* next = data_of<double>(sums);
    double all = 0;
    for (const auto [begin, count] : ranges) {
      *next = values.scalar_type() == at::kDouble
                  ? sum_of_squares(count, data_of<double>(values) + begin)
                  : sum_of_squares(count, data_of<float>(values) + begin);
      all += *next++;
    }
    *next = all;
  }
};

}  // namespace

const DeviceFunctions& cpu_functions() {
  static const CpuFunctions functions;
  return functions;
}

}  // namespace smp::kernels
