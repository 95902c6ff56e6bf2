#include "kernels/cpu_functions.h"

#include <algorithm>
#include <vector>

#include "kernels/adamw_kernel.h"
#include "kernels/cpu_experts.h"
#include "kernels/element_types.h"
#include "kernels/latent_heads.h"
#include "kernels/qk_norms.h"
#include "kernels/sgd_kernel.h"
#include "kernels/sum_of_squares.h"
#include "kernels/threads.h"

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

// Rows that a kernel adds up before they join a column sum: ranges of rows begin at multiples of
// it.
constexpr int64_t kRowsOfSum = 64;

// Calls body(first, rows) for ranges of rows side by side.
template <typename Body>
void for_rows(int64_t rows, int64_t cols, const Body& body) {
  for_ranges({.count = rows, .cost = cols},
             [&](int64_t, int64_t begin, int64_t end) { body(begin, end - begin); });
}

// Rows that add to column sums: the first range adds to `total`, each further one to sums of its
// own, which join the total in their order. Null stays null.
DividedWork summed_rows(int64_t rows, int64_t cols) {
  return {.count = rows, .cost = cols, .multiple = kRowsOfSum, .adds_sums = true};
}
template <typename C>
class RangeSums {
 public:
  RangeSums(const DividedWork& work, int64_t cols, C* total)
      : cols_(cols),
        total_(total),
        further_(total == nullptr ? 0 : static_cast<size_t>((ranges_of(work) - 1) * cols)) {}

  C* of(int64_t range) {
    return range == 0 || total_ == nullptr ? total_ : further_.data() + (range - 1) * cols_;
  }
  void join() const {
    for (size_t i = 0; i < further_.size(); ++i)
      total_[i % static_cast<size_t>(cols_)] += further_[i];
  }

 private:
  int64_t cols_;
  C* total_;
  std::vector<C> further_;
};

template <typename T>
T* at_row(T* values, int64_t row, int64_t cols) {
  return values == nullptr ? nullptr : values + row * cols;
}

// Calls body(part) for parts of a range of elements side by side.
template <typename T, typename Body>
void for_parts(const UpdateRange<T>& range, const Body& body) {
  for_rows(range.count, 1, [&](int64_t first, int64_t count) {
    UpdateRange<T> part = range;
    part.count = count;
    part.gradients += first;
    part.weights += first;
    for (T*& state : part.states) state = at_row(state, first, 1);
    part.copy = at_row(part.copy, first, 1);
    body(part);
  });
}

// The same kernel's shape for fewer rows.
template <typename Shape>
Shape part_of(Shape shape, int64_t rows) {
  shape.rows = rows;
  return shape;
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
      for_rows(shape.rows, shape.cols, [&](int64_t first, int64_t rows) {
        kernels::norm_forward(part_of(shape, rows), Wide<T>(epsilon),
                              at_row(data_of<T>(x), first, shape.cols), data_of<T>(weight),
                              data_of<T>(bias), at_row(data_of<T>(y), first, shape.cols),
                              at_row(data_of<Wide<T>>(stats), first, shape.stats_per_row()));
      });
    });
  }

  void norm_apply(const NormShape& shape, const at::Tensor& x, const at::Tensor& stats,
                  const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& y) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      for_rows(shape.rows, shape.cols, [&](int64_t first, int64_t rows) {
        kernels::norm_apply(part_of(shape, rows), at_row(data_of<T>(x), first, shape.cols),
                            at_row(data_of<Wide<T>>(stats), first, shape.stats_per_row()),
                            data_of<T>(weight), data_of<T>(bias),
                            at_row(data_of<T>(y), first, shape.cols));
      });
    });
  }

  void norm_backward(const NormShape& shape, const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& stats, const at::Tensor& weight, const at::Tensor& residual,
                     const at::Tensor& weight_gradient,
                     const at::Tensor& bias_gradient) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      using C = Wide<T>;
      const int64_t cols = shape.cols;
      const DividedWork work = summed_rows(shape.rows, cols);
      RangeSums<C> of_weight(work, cols, data_of<C>(weight_gradient)),
          of_bias(work, cols, data_of<C>(bias_gradient));
      for_ranges(work, [&](int64_t range, int64_t begin, int64_t end) {
        T* const dx = at_row(data_of<T>(dy), begin, cols);
        kernels::norm_backward(part_of(shape, end - begin), dx, at_row(data_of<T>(x), begin, cols),
                               at_row(data_of<C>(stats), begin, shape.stats_per_row()),
                               data_of<T>(weight), at_row(data_of<T>(residual), begin, cols), dx,
                               of_weight.of(range), of_bias.of(range));
      });
      of_weight.join();
      of_bias.join();
    });
  }

  void activation_forward(const ActivationShape& shape, const at::Tensor& u, const at::Tensor& bias,
                          const at::Tensor& y) const override {
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      const int64_t u_cols = shape.gated ? 2 * shape.cols : shape.cols;
      for_rows(shape.rows, u_cols, [&](int64_t first, int64_t rows) {
        kernels::activation_forward(part_of(shape, rows), at_row(data_of<T>(u), first, u_cols),
                                    data_of<T>(bias), at_row(data_of<T>(y), first, shape.cols));
      });
    });
  }

  void activation_backward(const ActivationShape& shape, const at::Tensor& u,
                           const at::Tensor& bias, const at::Tensor& dy,
                           const at::Tensor& bias_gradient) const override {
    with_element_type(u, [&](auto zero) {
      using T = decltype(zero);
      const int64_t u_cols = shape.gated ? 2 * shape.cols : shape.cols;
      const DividedWork work = summed_rows(shape.rows, u_cols);
      RangeSums<Wide<T>> sums(work, u_cols, data_of<Wide<T>>(bias_gradient));
      for_ranges(work, [&](int64_t range, int64_t begin, int64_t end) {
        kernels::activation_backward(part_of(shape, end - begin),
                                     at_row(data_of<T>(u), begin, u_cols), data_of<T>(bias),
                                     at_row(data_of<T>(dy), begin, shape.cols), sums.of(range));
      });
      sums.join();
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
      for_rows(x.numel() / cols, cols, [&](int64_t first, int64_t rows) {
        kernels::drop(dropout.from_row(first), rows, cols, at_row(data_of<T>(x), first, cols),
                      at_row(data_of<T>(y), first, cols));
      });
    });
  }

  void add_residual(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const Dropout& dropout) const override {
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = y.size(1);
      for_rows(y.size(0), cols, [&](int64_t first, int64_t rows) {
        const T* const from = at_row(data_of<T>(x), first, cols);
        T* const to = at_row(data_of<T>(y), first, cols);
        if (dropout.is_on()) {
          add_residual_dropped(dropout.from_row(first), rows, cols, from, data_of<T>(bias), to);
        } else {
          kernels::add_residual(rows, cols, from, data_of<T>(bias), to);
        }
      });
    });
  }

  void sum_and_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                    const Dropout& dropout, const NormShape& shape, double epsilon,
                    const at::Tensor& weight, const at::Tensor& norm_bias, const at::Tensor& normed,
                    const at::Tensor& stats) const override {
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = shape.cols;
      for_rows(shape.rows, cols, [&](int64_t first, int64_t rows) {
        kernels::sum_and_norm(part_of(shape, rows), dropout.from_row(first), Wide<T>(epsilon),
                              at_row(data_of<T>(x), first, cols), data_of<T>(bias),
                              at_row(data_of<T>(y), first, cols), data_of<T>(weight),
                              data_of<T>(norm_bias), at_row(data_of<T>(normed), first, cols),
                              at_row(data_of<Wide<T>>(stats), first, shape.stats_per_row()));
      });
    });
  }

  void add_column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const int64_t cols = x.size(1);
      const DividedWork work = summed_rows(x.size(0), cols);
      RangeSums<Wide<T>> of_ranges(work, cols, data_of<Wide<T>>(sums));
      for_ranges(work, [&](int64_t range, int64_t begin, int64_t end) {
        kernels::add_column_sums(end - begin, cols, at_row(data_of<T>(x), begin, cols),
                                 of_ranges.of(range));
      });
      of_ranges.join();
    });
  }

  void accumulate(const at::Tensor& x, const at::Tensor& sums) const override {
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      for_rows(x.numel(), 1, [&](int64_t first, int64_t count) {
        kernels::accumulate(count, data_of<T>(x) + first, data_of<Wide<T>>(sums) + first);
      });
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
    for_parts(range, [&](const auto& part) { smp::kernels::adamw_update(factors, part); });
  }
  void adamw_update(const AdamWFactors& factors, const UpdateRange<double>& range) const override {
    for_parts(range, [&](const auto& part) { smp::kernels::adamw_update(factors, part); });
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range) const override {
    for_parts(range, [&](const auto& part) { smp::kernels::sgd_update(factors, part); });
  }
  void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range) const override {
    for_parts(range, [&](const auto& part) { smp::kernels::sgd_update(factors, part); });
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
