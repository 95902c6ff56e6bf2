#include "smp/runtime/record/router_metrics.h"

#include <doctest/doctest.h>

#include <fstream>

#include "scratch_folder.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/record/metrics.h"

namespace smp::record {
namespace {

RouterMetrics router_of(const std::string& layer, std::vector<int64_t> tokens) {
  RouterMetrics router;
  router.layer = layer;
  router.tokens = std::move(tokens);
  return router;
}

TEST_CASE("imbalance is the fullest expert over an even share") {
  CHECK(imbalance(router_of("a", {10, 10, 10, 10})) == 1);
  CHECK(imbalance(router_of("a", {30, 10, 0, 0})) == 3);
  CHECK(imbalance(router_of("a", {0, 0})) == 1);  // of no tokens
  RouterMetrics first = router_of("a", {30, 10, 0, 0}), second = router_of("b", {10, 10, 10, 30});
  first.dropped = 7;
  first.balance_loss = 0.5;
  second.balance_loss = 0.25;
  second.z_loss = 0.125;
  const RouterSummary summary = summary_of({first, second});
  CHECK(summary.imbalance == 3);
  CHECK(summary.dropped == 0.07);
  CHECK(summary.balance_loss == 0.75);
  CHECK(summary.z_loss == 0.125);
}

TEST_CASE("a line of metrics has the load of the experts, of many not in every step") {
  StepMetrics metrics;
  CHECK(!text::Json::parse(to_json(metrics)).contains("experts"));
  metrics.step = 1;
  metrics.routers = {router_of("layers.0", {30, 10, 0, 0}), router_of("layers.1", {1, 1, 1, 1})};
  const text::Json experts = text::Json::parse(to_json(metrics)).at("experts");
  CHECK(experts.at("imbalance") == 3);
  CHECK(experts.at("imbalances").at("layers.1") == 1);
  CHECK(experts.at("tokens").at("layers.0") == text::Json{30, 10, 0, 0});
  metrics.routers[0].tokens.assign(kMostTokensPerExpert, 1);
  CHECK(!text::Json::parse(to_json(metrics)).at("experts").contains("tokens"));
  metrics.step = kRareTokensPerExpert;
  CHECK(text::Json::parse(to_json(metrics)).at("experts").contains("tokens"));
}

TEST_CASE("starving experts are told of once, and again when there are more") {
  const ScratchFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  StarvationWatch watch(out);
  const auto pass = [&](std::vector<int64_t> tokens) {
    static int64_t step = 0;
    for (int64_t i = 0; i < StarvationWatch::kSteps; ++i) {
      watch.add(++step, {router_of("layers.3", tokens)});
    }
  };
  pass({10, 9, 8, 11});
  pass({30, 20, 0, 0});
  pass({20, 30, 0, 0});
  pass({50, 0, 0, 0});
  std::fclose(out);
  std::ifstream in(folder / "out");
  std::string first, second, third;
  std::getline(in, first);
  std::getline(in, second);
  CHECK(first ==
        "warning: step 100: 2 of 4 experts of layers.3 got less than 5 % of an even share of the "
        "tokens in the last 50 steps: raise model.router_balance_loss, or set "
        "model.router_correction_bias");
  CHECK(second.starts_with("warning: step 200: 3 of 4 experts"));
  CHECK(!std::getline(in, third));
}

}  // namespace
}  // namespace smp::record
