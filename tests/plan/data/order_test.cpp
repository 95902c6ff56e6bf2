#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "files_and_errors.h"
#include "smp/plan/data/mixture.h"
#include "smp/plan/data/permutation.h"

namespace smp {

TEST_CASE("an epoch's order is a bijection, another one in each epoch, source and seed") {
  const auto order = [](uint64_t seed, uint32_t source, int64_t epoch, int64_t size) {
    const data::Permutation permutation(seed, source, epoch, size);
    std::vector<int64_t> places;
    for (int64_t i = 0; i < size; ++i) places.push_back(permutation(i));
    return places;
  };
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100, 1023, 1025, 4097, 60001}) {
    std::vector<int64_t> places = order(7, 0, 0, size);
    if (size > 30) {
      CHECK(places != order(7, 0, 1, size));
      CHECK(places != order(7, 1, 0, size));
      CHECK(places != order(8, 0, 0, size));
      int64_t unmoved = 0, neighbours = 0;
      for (int64_t i = 0; i + 1 < size; ++i) {
        const auto at = static_cast<size_t>(i);
        unmoved += places[at] == i ? 1 : 0;
        neighbours += places[at + 1] == places[at] + 1 ? 1 : 0;
      }
      CHECK(unmoved < 12);  // of a random order 1 is to be expected
      CHECK(neighbours < 12);
    }
    std::sort(places.begin(), places.end());
    for (int64_t i = 0; i < size; ++i) REQUIRE(places[static_cast<size_t>(i)] == i);
  }
  // 10^15 of them are no more work.
  const data::Permutation vast(7, 0, 0, 1'000'000'000'000'007);
  for (int64_t i = 0; i < 1000; ++i) {
    CHECK(vast(i) >= 0);
    CHECK(vast(i) < 1'000'000'000'000'007);
  }
}

TEST_CASE("places of an order are spread evenly") {
  constexpr int64_t kSize = 100'000, kParts = 10;
  const data::Permutation permutation(3, 0, 0, kSize);
  std::vector<int64_t> counts(kParts);
  for (int64_t i = 0; i < kSize / 10; ++i)
    ++counts[static_cast<size_t>(permutation(i) * kParts / kSize)];
  for (const int64_t count : counts) CHECK(std::abs(count - 1000) < 150);  // 5 deviations
}

TEST_CASE("a source's share differs from its weight by less than a sample at every prefix") {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    const auto sources = 1 + random() % (trial % 10 == 0 ? 100 : 8);
    std::vector<int64_t> weights;
    int64_t sum = 0;
    for (uint64_t i = 0; i < sources; ++i) {
      weights.push_back(1 + static_cast<int64_t>(random() % (trial % 3 == 0 ? 1'000'000 : 20)));
      sum += weights.back();
    }
    const data::Mixture mixture(weights);
    std::vector<int64_t> given(sources);
    for (int64_t n = 1; n <= 3000; ++n) {
      const data::Mixture::Turn turn = mixture.at(n - 1);
      REQUIRE(turn.sample == given[turn.source]);
      ++given[turn.source];
      for (size_t i = 0; i < sources; ++i) {
        const int64_t difference = given[i] * sum - n * weights[i];
        REQUIRE(std::abs(difference) < sum);
      }
    }
    CHECK(mixture.counts(3000) == given);
  }
}

TEST_CASE("the turn of a sample is the same, read forward, backward or by a jump") {
  const std::vector<int64_t> weights = {3, 7, 1, 12, 100, 5};
  const data::Mixture forward(weights);
  std::vector<data::Mixture::Turn> turns;
  for (int64_t n = 0; n < 40000; ++n) turns.push_back(forward.at(n));
  for (const int64_t n : {39999, 0, 128, 127, 20000, 19999, 39000, 5}) {
    const data::Mixture fresh(weights);
    CHECK(fresh.at(n) == turns[static_cast<size_t>(n)]);
    CHECK(forward.at(n) == turns[static_cast<size_t>(n)]);
  }
  // Whole periods are no work.
  const int64_t far = 128 * 1'000'000'000'000 + 17;
  CHECK(forward.at(far).source == turns[17].source);
  CHECK(forward.at(far).sample == turns[17].sample + weights[turns[17].source] * 1'000'000'000'000);
}

TEST_CASE("weights are exactly the decimal numbers that were written") {
  using Whole = std::vector<int64_t>;
  CHECK(data::Mixture::whole_weights({0.3, 0.7}) == Whole{3, 7});
  CHECK(data::Mixture::whole_weights({1}) == Whole{1});
  CHECK(data::Mixture::whole_weights({5e14, 5}) == Whole{100'000'000'000'000, 1});
  CHECK(data::Mixture::whole_weights({0.1, 0.25, 2}) == Whole{2, 5, 40});
  CHECK(data::Mixture::whole_weights({1e-7, 3e-7}) == Whole{1, 3});
  CHECK(data::Mixture::whole_weights({123456789, 987654321}) == Whole{13717421, 109739369});
  for (const std::vector<double>& weights :
       {std::vector<double>{1e15, 1e-15}, {0.1234567890123456, 1000.1}}) {
    CHECK(error_of([&] { data::Mixture::whole_weights(weights); }) ==
          "training.data.sources: the weights have too many digits for exact shares: write fewer "
          "digits, as in 0.125");
  }
}

}  // namespace smp
