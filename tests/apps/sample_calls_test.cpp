#include "sample_calls.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace smp;

namespace {

struct Batches {
  std::vector<int> made;
  double call_s, first_s;  // a call, and what the first batch takes besides

  int grow(double sample_s, int most) {
    return calls_of_a_sample(sample_s, most, [&](int calls) {
      made.push_back(calls);
      return calls * call_s + (made.size() == 1 ? first_s : 0);
    });
  }
};

}  // namespace

TEST_CASE("a sample is as long as it says though the first calls are slow") {
  for (const double first_s : {0.0, 0.0005, 0.012, 5.0}) {
    Batches batches{{}, 2e-6, first_s};
    const int calls = batches.grow(0.02, 100'000);
    CHECK(calls >= 9'999);
    CHECK(calls <= 10'000);
  }
}

TEST_CASE("a sample has one call at least and no more than it may have") {
  Batches slow{{}, 0.5, 0};
  CHECK(slow.grow(0.02, 100'000) == 1);
  CHECK(slow.made == std::vector<int>{3, 1});
  Batches quick{{}, 1e-9, 0};
  CHECK(quick.grow(0.02, 1000) == 1000);
  Batches nothing{{}, 0, 0};
  CHECK(nothing.grow(0.02, 1000) == 1000);
}

TEST_CASE("ranks settle until 0.3 s are over for the one that has been at it longest") {
  std::vector<double> told;
  let_settle([&](double mine) {
    told.push_back(mine);
    return mine;
  });
  CHECK(told.back() >= 0.3);
  CHECK(std::is_sorted(told.begin(), told.end()));
  int meetings = 0;
  let_settle([&](double) { return ++meetings < 3 ? 0.0 : 0.4; });  // another's
  CHECK(meetings == 3);
}
