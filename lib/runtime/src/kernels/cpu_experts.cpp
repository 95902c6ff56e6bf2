#include "kernels/cpu_experts.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "kernels/expert_functions.h"
#include "kernels/expert_math.h"
#include "kernels/expert_rows.h"
#include "kernels/threads.h"
#include "ledger/tensor_factories.h"

namespace smp::kernels {
namespace {

// A row in fp32 or fp64: itself, or a copy that is narrowed when it goes.
template <typename T>
class WideRow {
 public:
  WideRow(T* row, int64_t cols) : row_(row), cols_(cols) {
    if constexpr (kIsNarrow<T>) {
      if (row == nullptr) return;
      copy_.resize(static_cast<size_t>(cols));
      widen(cols, row, copy_.data());
    }
  }
  Wide<T>* data() {
    if constexpr (kIsNarrow<T>) {
      return row_ == nullptr ? nullptr : copy_.data();
    } else {
      return row_;
    }
  }
  void put_back() {
    if constexpr (kIsNarrow<T>) {
      if (row_ != nullptr) narrow(cols_, copy_.data(), row_);
    }
  }

 private:
  T* row_;
  int64_t cols_;
  std::vector<Wide<T>> copy_;
};

template <typename C>
RowWeights<C> row_weights(const at::Tensor& weights, const at::Tensor& places) {
  return {data_of<C>(weights), data_of<int32_t>(places)};
}

// Rows with zeros behind them; of fp64, whose product is not oneDNN's, the rows themselves.
at::Tensor padded_rows(const at::Tensor& x, int64_t first, int64_t rows) {
  const at::Tensor own = x.narrow(0, first, rows);
  const int64_t padded = program::padded_expert_rows(rows);
  if (x.scalar_type() == at::kDouble || padded == rows) return own;
  at::Tensor all = ledger::empty_tensor({padded, x.size(1)}, x.options());
  all.narrow(0, 0, rows).copy_(own);
  all.narrow(0, rows, padded - rows).zero_();
  return all;
}

// Calls body(row) for each row, side by side.
template <typename Body>
void for_single_rows(int64_t rows, int64_t cols, const Body& body) {
  for_ranges({.count = rows, .cost = cols}, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

at::Tensor zero_sums(int64_t segments, const program::RouterAttributes& router) {
  return ledger::zero_tensor({segments, router.experts}, at::TensorOptions(at::kDouble));
}

class CpuExperts final : public ExpertFunctions {
 public:
  void route(const program::RouterAttributes& router, const at::Tensor& bias,
             const RoutedTokens& routed) const override {
    with_wide_type(routed.scores, [&](auto zero) {
      using T = decltype(zero);
      const int64_t k = router.experts_per_token, tokens = routed.scores.size(0);
      auto* chosen = data_of<int32_t>(routed.chosen);
      T *scores = data_of<T>(routed.scores), *weights = data_of<T>(routed.weights),
        *log_sums = data_of<T>(routed.log_sums);
      for (int64_t t = 0; t < tokens; ++t) {
        T* of_token = scores + t * router.experts;
        if (log_sums != nullptr) log_sums[t] = log_sum_of(router.experts, of_token);
        choose_experts(router, data_of<T>(bias), of_token, chosen + t * k, weights + t * k);
      }
      drop_beyond_capacity(router, tokens, chosen, weights);
    });
  }

  void route_backward(const program::RouterAttributes& router, const RoutedTokens& routed,
                      const at::Tensor& d_weights,
                      const RouterLossGradients& gradients) const override {
    with_wide_type(routed.scores, [&](auto zero) {
      using T = decltype(zero);
      const int64_t k = router.experts_per_token, tokens = routed.scores.size(0);
      const T *balance = data_of<T>(gradients.balance), *log_sums = data_of<T>(routed.log_sums);
      const int64_t of_segment = balance != nullptr ? tokens / gradients.balance.size(0) : 1;
      for (int64_t t = 0; t < tokens; ++t) {
        RouterLosses<T> losses;
        if (balance != nullptr) losses.balance = balance + t / of_segment * router.experts;
        if (log_sums != nullptr) losses.z = static_cast<T>(2 * gradients.z * log_sums[t]);
        choose_experts_backward(router, data_of<T>(routed.scores) + t * router.experts,
                                data_of<int32_t>(routed.chosen) + t * k,
                                data_of<T>(routed.weights) + t * k, data_of<T>(d_weights) + t * k,
                                losses);
      }
    });
  }

  at::Tensor count_choices(const program::RouterAttributes& router, const at::Tensor& chosen,
                           int64_t segments) const override {
    const at::Tensor counts = zero_sums(segments, router);
    const int64_t of_segment = chosen.numel() / segments;
    const auto* choices = data_of<int32_t>(chosen);
    auto* sums = data_of<double>(counts);
    for (int64_t i = 0; i < chosen.numel(); ++i) {
      sums[i / of_segment * router.experts + expert_of_choice(choices[i])] += 1;
    }
    return counts;
  }

  at::Tensor sum_shares(const program::RouterAttributes& router, const at::Tensor& probabilities,
                        int64_t segments) const override {
    const at::Tensor shares = zero_sums(segments, router);
    const int64_t tokens = probabilities.size(0), of_segment = tokens / segments;
    with_wide_type(probabilities, [&](auto zero) {
      const auto* p = data_of<decltype(zero)>(probabilities);
      for (int64_t t = 0; t < tokens; ++t, p += router.experts) {
        auto* sums = data_of<double>(shares) + t / of_segment * router.experts;
        const double whole =
            router.kind == RouterKind::kSigmoid ? std::accumulate(p, p + router.experts, 0.0) : 1;
        for (int64_t e = 0; e < router.experts; ++e) sums[e] += static_cast<double>(p[e]) / whole;
      }
    });
    return shares;
  }

  at::Tensor sort_by_expert(const program::ExpertAttributes& experts, const at::Tensor& chosen,
                            const at::Tensor& rows, const at::Tensor& places) const override {
    at::Tensor of_experts = ledger::zero_tensor({experts.count}, chosen.options());
    auto *row = data_of<int32_t>(rows), *ends = data_of<int32_t>(of_experts),
         *place = data_of<int32_t>(places);
    const auto* expert = data_of<int32_t>(chosen);
    const auto own = [&](int64_t i) { return expert[i] - experts.first; };
    const auto is_own = [&](int64_t i) {
      return own(i) >= 0 && own(i) < experts.count &&
             program::sorts_token(experts, i / experts.per_token);
    };
    for (int64_t i = 0; i < chosen.numel(); ++i) {
      if (is_own(i)) ++ends[own(i)];
    }
    std::vector<int32_t> next;  // row of each expert
    int32_t sum = 0;
    for (int64_t e = 0; e < experts.count; ++e) {
      next.push_back(sum);
      ends[e] = sum += ends[e];
    }
    for (int64_t i = 0; i < chosen.numel(); ++i) {
      place[i] = is_own(i) ? next[static_cast<size_t>(own(i))]++ : -1;
      if (place[i] >= 0) row[place[i]] = static_cast<int32_t>(i);
    }
    return of_experts;
  }

  void dispatch(const at::Tensor& x, const at::Tensor& rows, int64_t used, int64_t per_token,
                const at::Tensor& y) const override {
    const auto* row = data_of<int32_t>(rows);
    const int64_t cols = x.size(1);
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      for_single_rows(used, cols, [&](int64_t r) {
        std::copy_n(data_of<T>(x) + row[r] / per_token * cols, cols, data_of<T>(y) + r * cols);
      });
    });
  }

  void combine(const at::Tensor& x, const at::Tensor& places, const at::Tensor& y) const override {
    const int64_t cols = x.size(1), per_token = places.size(1);
    const auto* place = data_of<int32_t>(places);
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const T* from = data_of<T>(x);
      T* to = data_of<T>(y);
      for_ranges({.count = y.size(0), .cost = per_token * cols},
                 [&](int64_t, int64_t begin, int64_t end) {
                   std::vector<Wide<T>> sum(static_cast<size_t>(cols));
                   for (int64_t t = begin; t < end; ++t) {
                     std::fill(sum.begin(), sum.end(), 0);
                     for (int64_t k = 0; k < per_token; ++k) {
                       const int32_t row = place[t * per_token + k];
                       if (row >= 0) accumulate(cols, from + row * cols, sum.data());
                     }
                     for (int64_t c = 0; c < cols; ++c) {
                       to[t * cols + c] = static_cast<T>(sum[static_cast<size_t>(c)]);
                     }
                   }
                 });
    });
  }

  // The product also takes rows behind the expert's, whose results are left out.
  void product(const at::Tensor& x, const at::Tensor& weight, int64_t first, int64_t rows,
               const at::Tensor& y) const override {
    const int64_t taken = std::min(program::padded_expert_rows(rows), x.size(0) - first);
    y.narrow(0, first, rows)
        .copy_(functions_of(x).product(x.narrow(0, first, taken), weight).narrow(0, 0, rows));
  }

  void add_product(const at::Tensor& dy, const at::Tensor& x, int64_t first, int64_t rows,
                   const at::Tensor& gradient) const override {
    functions_of(dy).add_product(padded_rows(dy, first, rows), padded_rows(x, first, rows), 1,
                                 gradient);
  }

  void add_bias(const ExpertBias& bias, const at::Tensor& y) const override {
    const int64_t cols = y.size(1);
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      using C = Wide<T>;
      const WideVector<T> own(cols, data_of<T>(bias.bias));
      const auto weights = row_weights<C>(bias.weights, bias.places);
      for (int64_t r = bias.first; r < bias.first + bias.rows; ++r) {
        T* row = data_of<T>(y) + r * cols;
        const C weight = weights.of(r);
        for (int64_t c = 0; c < cols; ++c) {
          row[c] = static_cast<T>(static_cast<C>(row[c]) + weight * own.data()[c]);
        }
      }
    });
  }

  void bias_gradient(const ExpertBias& bias, const at::Tensor& dy, const at::Tensor& gradient,
                     const at::Tensor& d_weights) const override {
    const int64_t cols = dy.size(1);
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      using C = Wide<T>;
      const WideVector<T> own(cols, data_of<T>(bias.bias));
      const auto weights = row_weights<C>(bias.weights, bias.places);
      C* sums = data_of<C>(gradient);
      for (int64_t r = bias.first; r < bias.first + bias.rows; ++r) {
        const T* row = data_of<T>(dy) + r * cols;
        const C weight = weights.of(r);
        for (int64_t c = 0; c < cols; ++c) sums[c] += weight * static_cast<C>(row[c]);
        if (!d_weights.defined()) continue;
        C sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += static_cast<C>(row[c]) * own.data()[c];
        data_of<C>(d_weights)[weights.place(r)] += sum;
      }
    });
  }

  void activation_forward(const program::ActivationAttributes& activation, const ExpertRows& rows,
                          const at::Tensor& y) const override {
    const int64_t cols = y.size(1);
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      T *up = data_of<T>(rows.up), *gate = data_of<T>(rows.gate);
      const auto weights = row_weights<Wide<T>>(rows.weights, rows.places);
      for_single_rows(rows.count, cols, [&](int64_t r) {
        WideRow<T> wide_up(up + r * cols, cols),
            wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
            result(data_of<T>(y) + r * cols, cols);
        expert_row_forward(activation, cols, weights.of(r), wide_gate.data(), wide_up.data(),
                           result.data());
        result.put_back();
      });
    });
  }

  void activation_backward(const program::ActivationAttributes& activation, const ExpertRows& rows,
                           const at::Tensor& dy, const at::Tensor& d_weights) const override {
    const int64_t cols = dy.size(1);
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      using C = Wide<T>;
      T *up = data_of<T>(rows.up), *gate = data_of<T>(rows.gate);
      const auto weights = row_weights<C>(rows.weights, rows.places);
      for_single_rows(rows.count, cols, [&](int64_t r) {
        WideRow<T> wide_up(up + r * cols, cols),
            wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
            result(data_of<T>(dy) + r * cols, cols);
        const C d_weight = expert_row_backward(activation, cols, weights.of(r), wide_gate.data(),
                                               wide_up.data(), result.data());
        for (WideRow<T>* row : {&wide_up, &wide_gate, &result}) row->put_back();
        if (d_weights.defined()) data_of<C>(d_weights)[weights.place(r)] = d_weight;
      });
    });
  }
};

}  // namespace

const ExpertFunctions& cpu_experts() {
  static const CpuExperts experts;
  return experts;
}

}  // namespace smp::kernels
