#include "smp/runtime/record/router_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace smp::record {
namespace {

int64_t choices_of(const RouterMetrics& router) {
  return std::accumulate(router.tokens.begin(), router.tokens.end(), int64_t{0});
}

double even_share(const RouterMetrics& router) {
  return static_cast<double>(choices_of(router)) / static_cast<double>(router.tokens.size());
}

}  // namespace

double imbalance(const RouterMetrics& router) {
  if (choices_of(router) == 0) return 1;
  return static_cast<double>(std::ranges::max(router.tokens)) / even_share(router);
}

RouterSummary summary_of(const std::vector<RouterMetrics>& routers) {
  RouterSummary summary;
  int64_t choices = 0, dropped = 0;
  for (const RouterMetrics& router : routers) {
    summary.balance_loss += router.balance_loss;
    summary.z_loss += router.z_loss;
    summary.imbalance = std::max(summary.imbalance, imbalance(router));
    choices += choices_of(router);
    dropped += router.dropped;
  }
  if (choices > 0) summary.dropped = static_cast<double>(dropped) / static_cast<double>(choices);
  return summary;
}

void StarvationWatch::add(int64_t step, const std::vector<RouterMetrics>& routers) {
  if (routers.empty()) return;
  if (steps_++ == 0) {
    sums_ = routers;
  } else {
    for (size_t i = 0; i < routers.size(); ++i) {
      std::ranges::transform(sums_[i].tokens, routers[i].tokens, sums_[i].tokens.begin(),
                             std::plus<>());
    }
  }
  if (steps_ < kSteps) return;
  steps_ = 0;
  told_.resize(routers.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double least = kLeastShare * even_share(sums_[i]);
    const int64_t starving = std::ranges::count_if(
        sums_[i].tokens, [&](int64_t tokens) { return static_cast<double>(tokens) < least; });
    if (starving > told_[i] && out_ != nullptr) {
      std::fputs(starvation_warning(step, sums_[i], starving).c_str(), out_);
      std::fflush(out_);
    }
    told_[i] = std::max(told_[i], starving);
  }
}

std::string starvation_warning(int64_t step, const RouterMetrics& sums, int64_t starving) {
  return fmt::format(
      "warning: step {}: {} of {} experts of {} got less than {:.0f} % of an even share of the "
      "tokens in the last {} steps: raise model.router_balance_loss, or set "
      "model.router_correction_bias\n",
      step, starving, sums.tokens.size(), sums.layer, 100 * StarvationWatch::kLeastShare,
      StarvationWatch::kSteps);
}

}  // namespace smp::record
