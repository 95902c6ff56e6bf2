#include <algorithm>
#include <numeric>

#include "kernels/element_types.h"
#include "kernels/expert_rows.h"
#include "layers/operations/kernels_of.h"
#include "smp/plan/base/check.h"

// Mixture of experts. Rows are sorted by expert and then by token. What lies behind the last
// expert's has no meaning; products may read a few rows of it, and leave out what these give.
namespace smp::layers {
namespace {

// Calls body(T()) with the type of fp32 or fp64 elements.
template <typename Body>
void with_wide_type(const at::Tensor& x, const Body& body) {
  kernels::with_element_type(x, [&](auto zero) {
    if constexpr (!kernels::kIsNarrow<decltype(zero)>) body(zero);
  });
}

at::Tensor widened(const at::Tensor& x) { return kernels::is_narrow(x) ? x.to(at::kFloat) : x; }

// Calls body(expert, first row, rows) for the rank's experts that have rows.
template <typename Body>
void for_each_expert(const at::Tensor& ends, const Body& body) {
  const auto* end = ends.const_data_ptr<int32_t>();
  int64_t first = 0;
  for (int64_t e = 0; e < ends.numel(); ++e) {
    if (end[e] > first) body(e, first, end[e] - first);
    first = end[e];
  }
}

int64_t used_rows(const at::Tensor& ends) {
  return ends.const_data_ptr<int32_t>()[ends.numel() - 1];
}

// The matrix of one of the experts whose matrices lie in `all`.
at::Tensor matrix_of(const at::Tensor& all, int64_t expert, int64_t experts) {
  const int64_t rows = all.size(0) / experts;
  return all.narrow(0, expert * rows, rows);
}

// A row in fp32 or fp64: itself, or a copy that is narrowed when it goes.
template <typename T>
class WideRow {
 public:
  WideRow(T* row, int64_t cols) : row_(row), cols_(cols) {
    if constexpr (kernels::kIsNarrow<T>) {
      if (row == nullptr) return;
      copy_.resize(static_cast<size_t>(cols));
      kernels::widen(cols, row, copy_.data());
    }
  }
  kernels::Wide<T>* data() {
    if constexpr (kernels::kIsNarrow<T>) {
      return row_ == nullptr ? nullptr : copy_.data();
    } else {
      return row_;
    }
  }
  void put_back() {
    if constexpr (kernels::kIsNarrow<T>) {
      if (row_ != nullptr) kernels::narrow(cols_, copy_.data(), row_);
    }
  }

 private:
  T* row_;
  int64_t cols_;
  std::vector<kernels::Wide<T>> copy_;
};

// The operands of an expert's activation, row by row.
struct ActivationRows {
  explicit ActivationRows(const Frame& frame)
      : up(frame.in(0)),
        gate(frame.in(1)),
        weights(frame.in(2)),
        by_expert(frame.in(3)),
        count(frame.has_in(4) ? used_rows(frame.in(4)) : up.size(0)),
        kind(frame.as<program::ExpertAttributes>().activation.activation) {}

  // Where the row's weight is.
  int64_t place(int64_t row) const {
    return by_expert.defined() ? by_expert.const_data_ptr<int32_t>()[row] : row;
  }
  template <typename T>
  T weight(int64_t row) const {
    return weights.defined() ? kernels::data_of<T>(weights)[place(row)] : T(1);
  }

  const at::Tensor &up, &gate, &weights, &by_expert;
  const int64_t count;
  const kernels::ActivationKind kind;
};

}  // namespace

void run_router_scores(Frame& frame) {
  const at::Tensor x = widened(frame.in(0));
  frame.set(0, kernels::functions_of(x).product(x, widened(frame.in(1))));
}

void run_route(Frame& frame) {
  const auto& router = frame.as<program::RouterAttributes>();
  const at::Tensor& scores = frame.in(0);
  const at::Tensor& chosen = frame.make(1);
  const at::Tensor& weights = frame.make(2);
  const at::Tensor bias = frame.has_in(1) ? widened(frame.in(1)) : at::Tensor();
  const at::Tensor none;
  const at::Tensor& log_sums = frame.has_out(3) ? frame.make(3) : none;
  with_wide_type(scores, [&](auto zero) {
    using T = decltype(zero);
    const int64_t k = router.experts_per_token, tokens = scores.size(0);
    for (int64_t t = 0; t < tokens; ++t) {
      T* of_token = kernels::data_of<T>(scores) + t * router.experts;
      if (log_sums.defined()) {
        kernels::data_of<T>(log_sums)[t] = kernels::log_sum_of(router.experts, of_token);
      }
      kernels::choose_experts(router, bias.defined() ? kernels::data_of<T>(bias) : nullptr,
                              of_token, kernels::data_of<int32_t>(chosen) + t * k,
                              kernels::data_of<T>(weights) + t * k);
    }
    kernels::drop_beyond_capacity(router, tokens, kernels::data_of<int32_t>(chosen),
                                  kernels::data_of<T>(weights));
  });
  frame.set_over(0, scores);
}

namespace {

// Tokens of [first, first + count) by the expert that they choose.
std::vector<int64_t> choices_by_expert(const program::RouterAttributes& router,
                                       const at::Tensor& chosen, int64_t first, int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(router.experts));
  const int64_t k = router.experts_per_token;
  const auto* choices = chosen.const_data_ptr<int32_t>() + first * k;
  for (int64_t i = 0; i < count * k; ++i) {
    ++tokens[static_cast<size_t>(kernels::expert_of_choice(choices[i]))];
  }
  return tokens;
}

// For each expert what the balancing loss adds to the gradient of its share of a token, and the
// loss itself to `loss`. Lepikhin et al. 2020 (arXiv:2006.16668); normalized as in DeepSeek-V3.
template <typename T>
class Balance {
 public:
  Balance(const program::RouterAttributes& router, const at::Tensor& chosen, double loss_gradient)
      : router_(router), chosen_(chosen), loss_gradient_(loss_gradient) {}

  // Of the token. All probabilities of its microbatch or sequence must still be there when the
  // first one is asked for.
  const T* of(int64_t token, const T* probabilities, double& loss) {
    if (router_.balance_loss == 0) return nullptr;
    if (token % router_.balance_tokens == 0) begin(token, probabilities, loss);
    return gradients_.data();
  }

 private:
  void begin(int64_t first, const T* probabilities, double& loss) {
    const int64_t count = router_.balance_tokens;
    const std::vector<int64_t> tokens = choices_by_expert(router_, chosen_, first, count);
    const double factor = router_.balance_loss * static_cast<double>(router_.experts) /
                          static_cast<double>(router_.experts_per_token * count);
    std::vector<double> shares(tokens.size());  // summed over the tokens
    for (int64_t t = 0; t < count; ++t) {
      const T* p = probabilities + t * router_.experts;
      const double sum =
          router_.kind == RouterKind::kSigmoid ? std::accumulate(p, p + router_.experts, 0.0) : 1;
      for (size_t e = 0; e < shares.size(); ++e) shares[e] += static_cast<double>(p[e]) / sum;
    }
    gradients_.clear();
    for (size_t e = 0; e < tokens.size(); ++e) {
      const double factor_of_expert = factor * static_cast<double>(tokens[e]);
      gradients_.push_back(static_cast<T>(factor_of_expert * loss_gradient_));
      loss += factor_of_expert * shares[e];
    }
  }

  const program::RouterAttributes& router_;
  const at::Tensor& chosen_;
  const double loss_gradient_;
  std::vector<T> gradients_;
};

}  // namespace

void run_route_backward(Frame& frame) {
  const auto& router = frame.as<program::RouterAttributes>();
  const at::Tensor& probabilities = frame.in(0);
  const at::Tensor& chosen = frame.in(1);
  const double loss_gradient = frame.call().loss_gradient;
  RouterLoad& load = frame.router_load();
  with_wide_type(probabilities, [&](auto zero) {
    using T = decltype(zero);
    const int64_t k = router.experts_per_token;
    Balance<T> balance(router, chosen, loss_gradient);
    for (int64_t t = 0; t < probabilities.size(0); ++t) {
      T* of_token = kernels::data_of<T>(probabilities) + t * router.experts;
      kernels::RouterLosses<T> losses{.balance = balance.of(t, of_token, load.balance_loss)};
      if (frame.has_in(4)) {
        const auto log_sum = static_cast<double>(kernels::data_of<T>(frame.in(4))[t]);
        losses.z = static_cast<T>(2 * router.z_loss * loss_gradient * log_sum);
        load.z_loss += router.z_loss * log_sum * log_sum;
      }
      kernels::choose_experts_backward(router, of_token, kernels::data_of<int32_t>(chosen) + t * k,
                                       kernels::data_of<T>(frame.in(2)) + t * k,
                                       kernels::data_of<T>(frame.in(3)) + t * k, losses);
    }
  });
  frame.set_over(0, probabilities);
}

void run_expert_load(Frame& frame) {
  const auto& router = frame.as<program::RouterAttributes>();
  const at::Tensor& chosen = frame.in(0);
  const int64_t tokens = chosen.size(0);
  const std::vector<int64_t> here = choices_by_expert(router, chosen, 0, tokens);
  RouterLoad& load = frame.router_load();
  load.tokens.resize(here.size());
  for (size_t e = 0; e < here.size(); ++e) load.tokens[e] += here[e];
  const auto* choices = chosen.const_data_ptr<int32_t>();
  load.dropped += std::count_if(choices, choices + chosen.numel(), [](int32_t c) { return c < 0; });
  if (frame.gradients() == 0) return;
  const at::Tensor& gradient = frame.gradient(0);
  with_wide_type(gradient, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t e = 0; e < router.experts; ++e) {
      const int64_t excess = here[static_cast<size_t>(e)] * router.experts - chosen.numel();
      kernels::data_of<T>(gradient)[e] += static_cast<T>(excess);
    }
  });
}

void run_router_input_gradient(Frame& frame) {
  const at::Tensor& scores = frame.in(0);
  at::Tensor dx = kernels::functions_of(scores).product(scores, widened(frame.in(1)).t());
  if (kernels::is_narrow(frame.in(1))) {
    frame.make(0).copy_(dx);
  } else {
    frame.set(0, std::move(dx));
  }
}

void run_router_weight_gradient(Frame& frame) {
  const at::Tensor& scores = frame.in(0);
  kernels::functions_of(scores).add_product(scores, widened(frame.in(1)), 1, frame.gradient(0));
}

void run_sigmoid(Frame& frame) {
  at::Tensor x = frame.in(0);
  frame.set_over(0, x.sigmoid_());
}

void run_sigmoid_backward(Frame& frame) {
  const at::Tensor& y = frame.in(0);
  const at::Tensor& dy = frame.in(1);
  kernels::with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    const T* value = kernels::data_of<T>(y);
    T* gradient = kernels::data_of<T>(dy);
    for (int64_t i = 0; i < y.numel(); ++i) {
      gradient[i] = static_cast<T>(gradient[i] * value[i] * (T(1) - value[i]));
    }
  });
  frame.set_over(0, dy);
}

void run_sort_by_expert(Frame& frame) {
  const auto& experts = frame.as<program::ExpertAttributes>();
  const at::Tensor& chosen = frame.in(0);
  auto* rows = kernels::data_of<int32_t>(frame.make(0));
  auto* ends = kernels::data_of<int32_t>(frame.make(1));
  auto* places = kernels::data_of<int32_t>(frame.make(2));
  const auto* expert = chosen.const_data_ptr<int32_t>();
  const auto own = [&](int64_t i) { return expert[i] - experts.first; };
  std::fill_n(ends, experts.count, 0);
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    if (own(i) >= 0 && own(i) < experts.count) ++ends[own(i)];
  }
  std::vector<int32_t> next;  // row of each expert
  int32_t sum = 0;
  for (int64_t e = 0; e < experts.count; ++e) {
    next.push_back(sum);
    ends[e] = sum += ends[e];
  }
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    places[i] = -1;
    if (own(i) < 0 || own(i) >= experts.count) continue;
    places[i] = next[static_cast<size_t>(own(i))]++;
    rows[places[i]] = static_cast<int32_t>(i);
  }
}

void run_dispatch(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& rows = frame.in(1);
  const at::Tensor& y = frame.make(0);
  const int64_t used = used_rows(frame.in(2)), cols = x.size(1);
  const auto* row = rows.const_data_ptr<int32_t>();
  const int64_t per_token = frame.as<program::ExpertAttributes>().per_token;
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = kernels::data_of<T>(x);
    T* to = kernels::data_of<T>(y);
    for (int64_t r = 0; r < used; ++r) {
      std::copy_n(from + row[r] / per_token * cols, cols, to + r * cols);
    }
  });
}

void run_combine(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& places = frame.in(1);
  const at::Tensor& y = frame.make(0);
  const int64_t cols = x.size(1), per_token = places.size(1);
  const auto* place = places.const_data_ptr<int32_t>();
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = kernels::data_of<T>(x);
    T* to = kernels::data_of<T>(y);
    std::vector<kernels::Wide<T>> sum(static_cast<size_t>(cols));
    for (int64_t t = 0; t < y.size(0); ++t) {
      std::fill(sum.begin(), sum.end(), 0);
      for (int64_t k = 0; k < per_token; ++k) {
        const int32_t row = place[t * per_token + k];
        if (row >= 0) kernels::accumulate(cols, from + row * cols, sum.data());
      }
      for (int64_t c = 0; c < cols; ++c) {
        to[t * cols + c] = static_cast<T>(sum[static_cast<size_t>(c)]);
      }
    }
  });
}

namespace {

// The rows of an expert times its matrix [out, in], transposed. The product also takes rows behind
// them, whose results are left out.
void put_product(const at::Tensor& x, const at::Tensor& weight, int64_t first, int64_t rows,
                 const at::Tensor& y) {
  const int64_t taken = std::min(program::padded_expert_rows(rows), x.size(0) - first);
  y.narrow(0, first, rows)
      .copy_(
          kernels::functions_of(x).product(x.narrow(0, first, taken), weight).narrow(0, 0, rows));
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

}  // namespace

void run_expert_product(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& x = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& y = frame.make(0);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    put_product(x, matrix_of(weight, expert, experts), first, rows, y);
  });
}

void run_expert_input_gradient(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& weight = frame.in(1);
  const at::Tensor& dx = frame.make(0);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    put_product(dy, matrix_of(weight, expert, experts).t(), first, rows, dx);
  });
}

void run_expert_weight_gradient(Frame& frame) {
  const int64_t experts = frame.as<program::ExpertAttributes>().count;
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& x = frame.in(1);
  for_each_expert(frame.in(2), [&](int64_t expert, int64_t first, int64_t rows) {
    kernels::functions_of(dy).add_product(padded_rows(dy, first, rows), padded_rows(x, first, rows),
                                          1, matrix_of(frame.gradient(0), expert, experts));
  });
}

void run_expert_activation(Frame& frame) {
  const ActivationRows rows(frame);
  const at::Tensor& y = frame.make(0);
  const int64_t cols = rows.up.size(1);
  kernels::with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    T *up = kernels::data_of<T>(rows.up), *gate = kernels::data_of<T>(rows.gate);
    for (int64_t r = 0; r < rows.count; ++r) {
      WideRow<T> wide_up(up + r * cols, cols),
          wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
          result(kernels::data_of<T>(y) + r * cols, cols);
      kernels::expert_row_forward(rows.kind, cols, rows.weight<C>(r), wide_gate.data(),
                                  wide_up.data(), result.data());
      result.put_back();
    }
  });
}

void run_expert_activation_backward(Frame& frame) {
  const ActivationRows rows(frame);
  const at::Tensor& dy = frame.in(5);
  at::Tensor d_weights;
  if (frame.has_out(3)) d_weights = frame.make_zero(3);
  const int64_t cols = rows.up.size(1);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    using C = kernels::Wide<T>;
    T *up = kernels::data_of<T>(rows.up), *gate = kernels::data_of<T>(rows.gate);
    for (int64_t r = 0; r < rows.count; ++r) {
      WideRow<T> wide_up(up + r * cols, cols),
          wide_gate(gate == nullptr ? nullptr : gate + r * cols, cols),
          result(kernels::data_of<T>(dy) + r * cols, cols);
      const C d_weight = kernels::expert_row_backward(
          rows.kind, cols, rows.weight<C>(r), wide_gate.data(), wide_up.data(), result.data());
      for (WideRow<T>* row : {&wide_up, &wide_gate, &result}) row->put_back();
      if (d_weights.defined()) kernels::data_of<C>(d_weights)[rows.place(r)] = d_weight;
    }
  });
  frame.set_over(0, rows.up);
  if (rows.gate.defined()) frame.set_over(1, rows.gate);
  frame.set_over(2, dy);
}

}  // namespace smp::layers
