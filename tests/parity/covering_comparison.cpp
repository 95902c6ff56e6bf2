#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <tuple>

#include "parity/comparison.h"
#include "parity/covering.h"
#include "scratch_folder.h"

namespace smp::parity {

void compare_covering_set(int64_t steps) {
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
    if (!references.contains(key)) references[key] = run(plan_for({"one rank", {}}), steps);
    const Plan plan = plan_for(combination.layout);
    const Run one = run(plan, steps);
    check_losses(one, references.at(key), tolerance::kParityF64);
    check_weights(one, references.at(key), tolerance::kParityF64);
    check_wire(plan, one.result);
    check_memory(plan, one.result);
  }
}

}  // namespace smp::parity
