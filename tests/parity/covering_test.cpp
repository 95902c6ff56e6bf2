#include "parity/covering.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <tuple>

#include "parity/comparison.h"
#include "scratch_folder.h"

// Everything legal is tried together with everything else it may meet: pairs of degrees, sharding,
// schedule, recompute, offload, tying, KV heads and dropout, each against one rank and against its
// plan.
namespace smp::parity {
namespace {

constexpr int64_t kSteps = 5;

}  // namespace

TEST_CASE("the covering set, fp64, 5 steps: every combination trains as one rank does") {
  const ScratchFolder folder;
  const std::string text = folder / "text.txt";
  std::ofstream(text) << sample_text(20000);
  const CoveringSet set = covering_set(150, Precision::kFp64, text);
  MESSAGE(fmt::format("{} combinations cover {} pairs", set.combinations.size(), set.pairs));
  CHECK(set.combinations.size() >= 150);
  std::map<std::tuple<bool, bool, bool>, Run> references;
  for (const Combination& combination : set.combinations) {
    INFO(combination.layout.name);
    const auto key = std::tuple(combination.llama, combination.tied, combination.dropout);
    const auto plan_for = [&](const LayoutCase& layout) {
      return plan_of(combination.model(), layout, combination.precision, text);
    };
    if (!references.contains(key)) references[key] = run(plan_for({"one rank", {}}), kSteps);
    const Plan plan = plan_for(combination.layout);
    const Run one = run(plan, kSteps);
    check_losses(one, references.at(key), tolerance::kParityF64);
    check_weights(one, references.at(key), tolerance::kParityF64);
    check_wire(plan, one.result);
    check_memory(plan, one.result);
  }
}

}  // namespace smp::parity
