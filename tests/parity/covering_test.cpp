#include "parity/covering.h"

#include <doctest/doctest.h>

#include <array>
#include <set>

#include "parity/random.h"
#include "scratch_folder.h"

// Everything legal is tried together with everything else it may meet: pairs of degrees, sharding,
// schedule, recompute, offload, family, tying, dropout, precision, split sequences and packed or
// gathered small tensors, each against one rank and against its plan.
namespace smp::parity {
namespace {

using Pair = std::array<int, 4>;  // factor, value, factor, value

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      pairs.insert({a, choice[static_cast<size_t>(a)], b, choice[static_cast<size_t>(b)]});
    }
  }
  return pairs;
}

}  // namespace

TEST_CASE("a covering set leaves out no pair of values that some legal combination has") {
  const ScratchFolder folder;
  const std::string data_path = write_data(folder.path());
  const CoveringSet set = covering_set({.all_models = true}, data_path);
  std::set<Pair> covered;
  for (const Combination& combination : set.combinations) {
    CHECK(is_legal(combination, data_path));
    covered.merge(pairs_of(combination.choice));
  }
  CHECK(static_cast<int64_t>(covered.size()) == set.covered);
  Random random;
  int legal = 0;
  for (int i = 0; i < 100000; ++i) {
    Choice choice{};
    for (size_t f = 0; f < kFactors; ++f) {
      choice[f] = random.below(static_cast<int>(factor_names()[f].values.size()));
    }
    if (!is_sensible(choice) || !is_legal(Combination(choice), data_path)) continue;
    ++legal;
    for (const Pair& pair : pairs_of(choice)) CHECK(covered.contains(pair));
  }
  CHECK(legal > 100);
}

TEST_CASE("the covering set, fp64, 3 steps: every combination trains as one rank does") {
  compare_covering_set(3);
}
TEST_CASE("the covering set, 2 steps: fp32, bf16 and fp16 too train as one rank does") {
  compare_covering_precisions(2);
}

}  // namespace smp::parity
