#pragma once

#include <optional>

#include "cuda/expert_launches.h"
#include "cuda/launches.h"
#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "ledger/tensor_factories.h"

// The mixture of experts of a GPU. A Runner runs the kernels' bodies; torch sorts and computes
// products. The ends of the experts' rows go to the host, since each expert's product has as many
// rows as chose it: the one wait of a layer's forward.
namespace smp::cuda {

template <typename Runner>
class GpuExperts final : public kernels::ExpertFunctions {
 public:
  explicit GpuExperts(Runner runner) : runner_(std::move(runner)) {}

  void route(const program::RouterAttributes& router, const at::Tensor& bias,
             const kernels::RoutedTokens& routed) const override {
    const int64_t tokens = routed.scores.size(0);
    at::Tensor of_groups;
    if (router.groups > 1) {
      of_groups = ledger::empty_tensor({tokens, router.groups}, routed.scores.options());
    }
    kernels::with_wide_type(routed.scores, [&](auto zero) {
      using C = decltype(zero);
      const RouterLaunches<Runner, C> launches(runner_);
      C* const scores = kernels::data_of<C>(routed.scores);
      launches.probabilities(router, tokens, scores, kernels::data_of<C>(routed.log_sums));
      launches.choose(router, tokens, kernels::data_of<C>(bias), scores,
                      kernels::data_of<C>(of_groups), kernels::data_of<int32_t>(routed.chosen),
                      kernels::data_of<C>(routed.weights));
    });
    if (router.capacity > 0) drop_beyond_capacity(router, routed);
  }

  void route_backward(const program::RouterAttributes& router, const kernels::RoutedTokens& routed,
                      const at::Tensor& d_weights,
                      const kernels::RouterLossGradients& losses) const override {
    const int64_t tokens = routed.scores.size(0);
    kernels::with_wide_type(routed.scores, [&](auto zero) {
      using C = decltype(zero);
      RoutedPointers<C> pointers{.chosen = kernels::data_of<int32_t>(routed.chosen),
                                 .weights = kernels::data_of<C>(routed.weights),
                                 .d_weights = kernels::data_of<C>(d_weights),
                                 .balance = kernels::data_of<C>(losses.balance),
                                 .log_sums = kernels::data_of<C>(routed.log_sums),
                                 .z = static_cast<C>(losses.z)};
      if (losses.balance.defined()) pointers.tokens_of_segment = tokens / losses.balance.size(0);
      RouterLaunches<Runner, C>(runner_).choose_backward(router, tokens, pointers,
                                                         kernels::data_of<C>(routed.scores));
    });
  }

  at::Tensor count_choices(const program::RouterAttributes& router, const at::Tensor& chosen,
                           int64_t segments) const override {
    at::Tensor counts =
        ledger::zero_tensor({segments, router.experts}, chosen.options().dtype(at::kLong));
    const at::Tensor experts = taken_or_not(chosen).view({segments, -1});
    // Whole numbers, whose sums do not hang on the order.
    counts.scatter_add_(1, experts, ledger::full_tensor(experts.sizes(), 1, experts.options()));
    return counts.to(at::kDouble);
  }

  at::Tensor sum_shares(const program::RouterAttributes& router, const at::Tensor& probabilities,
                        int64_t segments) const override {
    at::Tensor shares = probabilities.to(at::kDouble);
    if (router.kind == RouterKind::kSigmoid) shares = shares.div(shares.sum(-1, /*keepdim=*/true));
    return shares.view({segments, -1, router.experts}).sum(1);
  }

  at::Tensor sort_by_expert(const program::ExpertAttributes& experts, const at::Tensor& chosen,
                            const at::Tensor& rows, const at::Tensor& places) const override {
    const at::Tensor own = chosen.flatten().sub(experts.first);
    at::Tensor is_elsewhere = own.lt(0).logical_or_(own.ge(experts.count));
    if (experts.own_tokens > 0) {
      const int64_t first = experts.first_token * experts.per_token;
      const int64_t end = first + experts.own_tokens * experts.per_token;
      is_elsewhere.narrow(0, 0, first).fill_(true);
      is_elsewhere.narrow(0, end, own.numel() - end).fill_(true);
    }
    // Those of other ranks behind all others.
    const at::Tensor keys = own.masked_fill(is_elsewhere, experts.count).to(at::kLong);
    const at::Tensor order =
        std::get<1>(keys.sort(/*stable=*/std::optional(true), /*dim=*/0, /*descending=*/false));
    at::Tensor(rows).copy_(order.narrow(0, 0, rows.numel()));
    at::Tensor counts = ledger::zero_tensor({experts.count + 1}, keys.options());
    const at::Tensor ones = ledger::full_tensor(keys.sizes(), 1, keys.options());
    counts.scatter_add_(0, keys, ones);
    at::Tensor place = ledger::empty_tensor_like(keys);
    place.scatter_(0, order, ones.cumsum(0).sub_(1));
    at::Tensor(places).copy_(place.masked_fill_(is_elsewhere, -1).view(places.sizes()));
    return counts.narrow(0, 0, experts.count).cumsum(0).to(at::kInt).to(at::kCPU);
  }

  void dispatch(const at::Tensor& x, const at::Tensor& rows, int64_t used, int64_t per_token,
                const at::Tensor& y) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().dispatch(used, x.size(1), per_token, kernels::data_of<int32_t>(rows),
                             kernels::data_of<T>(x), kernels::data_of<T>(y));
    });
  }

  void combine(const at::Tensor& x, const at::Tensor& places, const at::Tensor& y) const override {
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().combine(y.size(0), x.size(1), places.size(1), kernels::data_of<int32_t>(places),
                            kernels::data_of<T>(x), kernels::data_of<T>(y));
    });
  }

  void product(const at::Tensor& x, const at::Tensor& weight, int64_t first, int64_t rows,
               const at::Tensor& y) const override {
    at::Tensor to = y.narrow(0, first, rows);
    to.addmm_(x.narrow(0, first, rows), weight.t(), /*beta=*/0);
  }

  void add_product(const at::Tensor& dy, const at::Tensor& x, int64_t first, int64_t rows,
                   const at::Tensor& gradient) const override {
    kernels::functions_of(dy).add_product(dy.narrow(0, first, rows), x.narrow(0, first, rows), 1,
                                          gradient);
  }

  void add_bias(const kernels::ExpertBias& bias, const at::Tensor& y) const override {
    kernels::with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().add_bias(bias.rows, y.size(1), weights_of<T>(bias),
                             kernels::data_of<T>(bias.bias),
                             kernels::data_of<T>(y) + bias.first * y.size(1));
    });
  }

  void bias_gradient(const kernels::ExpertBias& bias, const at::Tensor& dy,
                     const at::Tensor& gradient, const at::Tensor& d_weights) const override {
    const int64_t cols = dy.size(1);
    const at::Tensor scratch = ledger::empty_tensor(
        {Launches<Runner, float>::column_sums_scratch(bias.rows, cols)}, kernels::wide_options(dy));
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      using C = kernels::Wide<T>;
      launches<T>().bias_gradient(
          bias.rows, cols, weights_of<T>(bias), kernels::data_of<T>(bias.bias),
          kernels::data_of<T>(dy) + bias.first * cols, kernels::data_of<C>(gradient),
          kernels::data_of<C>(d_weights), kernels::data_of<C>(scratch));
    });
  }

  void activation_forward(const program::ActivationAttributes& activation,
                          const kernels::ExpertRows& rows, const at::Tensor& y) const override {
    kernels::with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_forward(activation.activation, pointers_of<T>(activation, rows),
                                       kernels::data_of<T>(y));
    });
  }

  void activation_backward(const program::ActivationAttributes& activation,
                           const kernels::ExpertRows& rows, const at::Tensor& dy,
                           const at::Tensor& d_weights) const override {
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      launches<T>().activation_backward(activation.activation, pointers_of<T>(activation, rows),
                                        kernels::data_of<T>(dy),
                                        kernels::data_of<kernels::Wide<T>>(d_weights));
    });
  }

 private:
  // The expert of each choice, int64: ~e is -1 - e.
  static at::Tensor taken_or_not(const at::Tensor& chosen) {
    return chosen.where(chosen.ge(0), chosen.neg().sub_(1)).to(at::kLong);
  }

  // The choices of each expert, largest weight first, then in their order: two stable sorts.
  static void drop_beyond_capacity(const program::RouterAttributes& router,
                                   const kernels::RoutedTokens& routed) {
    const auto order_of = [](const at::Tensor& keys, bool descending) {
      return std::get<1>(keys.sort(/*stable=*/std::optional(true), /*dim=*/0, descending));
    };
    const at::Tensor experts = routed.chosen.flatten().to(at::kLong);
    const at::Tensor by_weight = order_of(routed.weights.flatten(), true);
    const at::Tensor order = by_weight.gather(0, order_of(experts.gather(0, by_weight), false));
    const at::Tensor ones = ledger::full_tensor(experts.sizes(), 1, experts.options());
    at::Tensor counts = ledger::zero_tensor({router.experts}, experts.options());
    counts.scatter_add_(0, experts, ones);
    const at::Tensor begins = counts.cumsum(0).sub_(counts);
    // The place of each choice among those of its expert.
    at::Tensor place = ledger::empty_tensor_like(experts);
    place.scatter_(0, order, ones.cumsum(0).sub_(1));
    const at::Tensor is_dropped =
        place.sub_(begins.gather(0, experts)).ge(router.capacity).view(routed.chosen.sizes());
    at::Tensor chosen = routed.chosen, weights = routed.weights;
    chosen.copy_(chosen.neg().sub_(1).where(is_dropped, chosen));
    weights.masked_fill_(is_dropped, 0);
  }

  template <typename T>
  ExpertLaunches<Runner, T> launches() const {
    return ExpertLaunches<Runner, T>(runner_);
  }

  // From the first of its rows on.
  template <typename T>
  static kernels::RowWeights<kernels::Wide<T>> weights_of(const kernels::ExpertBias& bias) {
    return {kernels::data_of<kernels::Wide<T>>(bias.weights),
            bias.places.defined() ? kernels::data_of<int32_t>(bias.places) + bias.first : nullptr};
  }

  template <typename T>
  static ActivationRows<T> pointers_of(const program::ActivationAttributes& activation,
                                       const kernels::ExpertRows& rows) {
    using C = kernels::Wide<T>;
    return {.rows = rows.count,
            .cols = rows.up.size(1),
            .up = kernels::data_of<T>(rows.up),
            .gate = kernels::data_of<T>(rows.gate),
            .weights = {kernels::data_of<C>(rows.weights), kernels::data_of<int32_t>(rows.places)},
            .limits = kernels::limits_of<C>(activation)};
  }

  const Runner runner_;
};

}  // namespace smp::cuda
