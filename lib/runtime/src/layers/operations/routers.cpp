#include "kernels/element_types.h"
#include "layers/operations/kernels_of.h"
#include "smp/plan/base/check.h"

// The router of a mixture of experts, and the gate of its shared expert.
namespace smp::layers {
namespace {

const program::RouterAttributes& router_of(const Frame& frame) {
  return frame.as<program::RouterAttributes>();
}

at::Tensor widened(const at::Tensor& x) {
  return x.defined() && kernels::is_narrow(x) ? x.to(at::kFloat) : x;
}

void count_choices(const Frame& frame, const at::Tensor& chosen) {
  const at::Tensor here = kernels::functions_of(chosen)
                              .experts()
                              .count_choices(router_of(frame), chosen, 1)
                              .to(at::kCPU);
  std::vector<double>& sums = frame.step_choices();
  sums.resize(static_cast<size_t>(here.numel()));
  for (size_t e = 0; e < sums.size(); ++e) sums[e] += here.const_data_ptr<double>()[e];
}

}  // namespace

void run_router_scores(Frame& frame) {
  const at::Tensor x = widened(frame.in(0));
  at::Tensor scores = kernels::functions_of(x).product(x, widened(frame.in(1)));
  if (frame.has_in(2)) scores.add_(widened(frame.in(2)));
  frame.set(0, std::move(scores));
}

void run_route(Frame& frame) {
  const program::RouterAttributes& router = router_of(frame);
  const kernels::RoutedTokens routed{.scores = frame.in(0),
                                     .chosen = frame.make(1),
                                     .weights = frame.make(2),
                                     .log_sums = frame.has_out(3) ? frame.make(3) : at::Tensor()};
  kernels::functions_of(routed.scores).experts().route(router, widened(frame.in(1)), routed);
  if (router.balances_step && frame.call().is_first) count_choices(frame, routed.chosen);
  frame.set_over(0, routed.scores);
}

namespace {

// Adds up the choices of the ranks that share the sequences.
at::Tensor summed(const Frame& frame, const at::Tensor& choices) {
  if (!router_of(frame).sums_choices()) return choices;
  const at::Tensor sums = choices.to(at::kCPU);
  for (comm::Communicator* group : {frame.context().ring, frame.context().exchange}) {
    if (group == nullptr) continue;
    group
        ->all_reduce(sums.data_ptr(), sums.data_ptr(), sums.numel(), DType::kF64,
                     comm::ReduceOp::kSum, "context.router")
        ->wait();
  }
  return sums.to(choices.device());
}

// By segment and expert, the choices that a balancing loss counts: of the microbatch, or of the
// step's microbatches on average.
at::Tensor balanced_choices(const Frame& frame, const at::Tensor& chosen, int64_t segments) {
  const program::RouterAttributes& router = router_of(frame);
  if (!router.balances_step) {
    return summed(frame,
                  kernels::functions_of(chosen).experts().count_choices(router, chosen, segments));
  }
  const std::vector<double>& of_step = frame.step_choices();
  SMP_CHECK_EQ(static_cast<int64_t>(of_step.size()), router.experts);
  SMP_CHECK_EQ(segments, 1);
  const at::Tensor choices =
      ledger::empty_tensor({1, router.experts}, at::TensorOptions(at::kDouble));
  std::copy(of_step.begin(), of_step.end(), choices.mutable_data_ptr<double>());
  return choices.to(chosen.device());
}

// What the balancing loss adds to the gradients of each expert's share of a token; the loss itself
// goes to the sums. Lepikhin et al. 2020 (arXiv:2006.16668); normalized as in DeepSeek-V3.
at::Tensor balance_gradients(const Frame& frame, const kernels::RoutedTokens& routed) {
  const program::RouterAttributes& router = router_of(frame);
  if (router.balance_loss == 0) return {};
  const int64_t segments = router.segments(routed.scores.size(0));
  at::Tensor factors = balanced_choices(frame, routed.chosen, segments);
  factors.mul_(router.balance_loss * static_cast<double>(router.experts) /
               static_cast<double>(router.experts_per_token * router.balance_tokens));
  const at::Tensor shares =
      kernels::functions_of(routed.scores).experts().sum_shares(router, routed.scores, segments);
  frame.router_sums().select(0, router.experts + kBalanceSum).add_(shares.mul(factors).sum());
  return factors.mul_(frame.call().loss_gradient).to(routed.scores.scalar_type());
}

}  // namespace

void run_route_backward(Frame& frame) {
  const program::RouterAttributes& router = router_of(frame);
  const kernels::RoutedTokens routed{.scores = frame.in(0),
                                     .chosen = frame.in(1),
                                     .weights = frame.in(2),
                                     .log_sums = frame.in(4)};
  kernels::RouterLossGradients losses{.balance = balance_gradients(frame, routed)};
  if (routed.log_sums.defined()) {
    losses.z = router.z_loss * frame.call().loss_gradient;
    const at::Tensor squares = routed.log_sums.to(at::kDouble).square();
    frame.router_sums().select(0, router.experts + kZSum).add_(squares.sum(), router.z_loss);
  }
  kernels::functions_of(routed.scores)
      .experts()
      .route_backward(router, routed, frame.in(3), losses);
  frame.set_over(0, routed.scores);
}

void run_expert_load(Frame& frame) {
  const program::RouterAttributes& router = router_of(frame);
  const at::Tensor& chosen = frame.in(0);
  const at::Tensor here =
      kernels::functions_of(chosen).experts().count_choices(router, chosen, 1).view({-1});
  const at::Tensor& sums = frame.router_sums();
  sums.narrow(0, 0, router.experts).add_(here);
  if (router.capacity > 0) {
    sums.select(0, router.experts + kDroppedSum).add_(chosen.lt(0).sum());
  }
  if (frame.gradients() == 0) return;
  at::Tensor gradient = frame.gradient(0);
  gradient.add_(here.mul(router.experts).sub_(chosen.numel()));
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
  at::Tensor dy = frame.in(1);
  frame.set_over(0, dy.mul_(y).mul_(y.neg().add_(1)));
}

}  // namespace smp::layers
