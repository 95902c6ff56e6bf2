#include "prediction/over_frameworks.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using namespace smp::prediction;

TEST_CASE("the median is the middle one, of two the lower, and of equals the first") {
  using Named = std::pair<int, std::string>;
  std::vector<Named> all = {{3, "c"}, {1, "a"}, {2, "b"}};
  CHECK(median_of(all, &Named::first).second == "b");
  all.emplace_back(4, "d");
  CHECK(median_of(all, &Named::first).second == "b");
  std::vector<Named> alike = {{1, "first"}, {1, "second"}};
  CHECK(median_of(alike, &Named::first).second == "first");
}

TEST_CASE("a fit is certain where all frameworks agree") {
  const auto fit = [](std::vector<Fit> fits) {
    return fit_in_all(fits, [](Fit one) { return one; });
  };
  CHECK(fit({Fit::kFits, Fit::kFits}) == Fit::kFits);
  CHECK(fit({Fit::kNo, Fit::kNo, Fit::kNo}) == Fit::kNo);
  CHECK(fit({Fit::kFits, Fit::kNo}) == Fit::kTight);
  CHECK(fit({Fit::kTight, Fit::kTight}) == Fit::kTight);
  CHECK(fit({Fit::kTight, Fit::kFits}) == Fit::kTight);
}
