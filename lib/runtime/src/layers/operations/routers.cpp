#include <algorithm>
#include <numeric>

#include "kernels/element_types.h"
#include "kernels/expert_rows.h"
#include "layers/operations/kernels_of.h"
#include "smp/plan/base/check.h"

// The router of a mixture of experts, and the gate of its shared expert.
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

void count_choices(const program::RouterAttributes& router, const at::Tensor& chosen,
                   const Frame& frame) {
  const std::vector<int64_t> here = choices_by_expert(router, chosen, 0, chosen.size(0));
  std::vector<double>& sums = frame.step_choices();
  sums.resize(here.size());
  for (size_t e = 0; e < here.size(); ++e) sums[e] += static_cast<double>(here[e]);
}

}  // namespace

void run_router_scores(Frame& frame) {
  const at::Tensor x = widened(frame.in(0));
  const at::Tensor& scores =
      frame.set(0, kernels::functions_of(x).product(x, widened(frame.in(1))));
  if (!frame.has_in(2)) return;
  const at::Tensor& bias = frame.in(2);
  kernels::with_element_type(bias, [&](auto zero) {
    using T = decltype(zero);
    const kernels::WideVector<T> wide(bias.numel(), kernels::data_of<T>(bias));
    auto* row = kernels::data_of<kernels::Wide<T>>(scores);
    for (int64_t t = 0; t < scores.size(0); ++t, row += bias.numel()) {
      for (int64_t e = 0; e < bias.numel(); ++e) row[e] += wide.data()[e];
    }
  });
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
  if (router.balances_step && frame.call().is_first) count_choices(router, chosen, frame);
  frame.set_over(0, scores);
}

namespace {

// For each expert what the balancing loss adds to the gradient of its share of a token, and the
// loss itself to `loss`. `of_step`: the tokens that chose it in a microbatch of the step, on
// average, if those count. Lepikhin et al. 2020 (arXiv:2006.16668); normalized as in DeepSeek-V3.
template <typename T>
class Balance {
 public:
  Balance(const program::RouterAttributes& router, const at::Tensor& chosen,
          const std::vector<double>& of_step, double loss_gradient)
      : router_(router), chosen_(chosen), of_step_(of_step), loss_gradient_(loss_gradient) {}

  // Of the token. All probabilities of its microbatch or sequence must still be there when the
  // first one is asked for.
  const T* of(int64_t token, const T* probabilities, double& loss) {
    if (router_.balance_loss == 0) return nullptr;
    if (token % router_.balance_tokens == 0) begin(token, probabilities, loss);
    return gradients_.data();
  }

 private:
  std::vector<double> tokens_of(int64_t first, int64_t count) const {
    if (router_.balances_step) {
      SMP_CHECK_EQ(static_cast<int64_t>(of_step_.size()), router_.experts);
      return of_step_;
    }
    const std::vector<int64_t> here = choices_by_expert(router_, chosen_, first, count);
    return {here.begin(), here.end()};
  }

  void begin(int64_t first, const T* probabilities, double& loss) {
    const int64_t count = router_.balance_tokens;
    const std::vector<double> tokens = tokens_of(first, count);
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
      const double factor_of_expert = factor * tokens[e];
      gradients_.push_back(static_cast<T>(factor_of_expert * loss_gradient_));
      loss += factor_of_expert * shares[e];
    }
  }

  const program::RouterAttributes& router_;
  const at::Tensor& chosen_;
  const std::vector<double>& of_step_;
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
    Balance<T> balance(router, chosen, frame.step_choices(), loss_gradient);
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

}  // namespace smp::layers
