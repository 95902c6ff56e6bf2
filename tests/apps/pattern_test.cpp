#include "pattern.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

using namespace smp;

namespace {

constexpr int kRanks = 8;
constexpr int64_t kPart = 1024;  // elements that each rank has of a gathered buffer

// How many elements of a gathered buffer are seen to be wrong where a rank's element comes from
// elsewhere.
struct Place {
  int rank;
  int64_t i;
};
int64_t wrong(const std::function<Place(Place)>& from) {
  const Pattern pattern(DType::kF32, comm::ReduceOp::kSum, kRanks);
  std::vector<std::byte> at(4);
  int64_t count = 0;
  for (int rank = 0; rank < kRanks; ++rank)
    for (int64_t i = 0; i < kPart; ++i) {
      const Place place = from({rank, i});
      pattern.write(at.data(), 0, pattern.given(place.rank, place.i));
      count += pattern.is(at.data(), 0, pattern.given(rank, i)) ? 0 : 1;
    }
  return count;
}

}  // namespace

TEST_CASE("smp-bench's pattern shows ranks and places that are mistaken for others") {
  constexpr int64_t kMany = kRanks * kPart / 3;  // chance leaves half of them right
  CHECK(wrong([](Place p) { return p; }) == 0);
  for (const int64_t shift : {1, 2, 4, 8, 64, 512}) {  // chunks of so many elements are swapped
    CAPTURE(shift);
    CHECK(wrong([&](Place p) { return Place{p.rank, p.i ^ shift}; }) > kMany);
  }
  CHECK(wrong([](Place p) { return Place{0, p.i}; }) > kMany);  // rank 0's part for everyone
  for (const int ranks : {1, 2, 4, 5}) {
    CAPTURE(ranks);
    CHECK(wrong([&](Place p) { return Place{(p.rank + ranks) % kRanks, p.i}; }) > kMany);
  }
}

TEST_CASE("smp-bench's pattern shows results of another part, or without a rank") {
  for (const comm::ReduceOp op :
       {comm::ReduceOp::kSum, comm::ReduceOp::kAverage, comm::ReduceOp::kProduct}) {
    CAPTURE(int(op));
    const Pattern pattern(DType::kF32, op, kRanks);
    for (const int64_t away : {int64_t{1}, int64_t{2}, int64_t{8}, 2 * kPart, 5 * kPart}) {
      CAPTURE(away);
      int64_t unlike = 0;
      for (int64_t i = 0; i < kPart; ++i)
        unlike += pattern.reduced(i) != pattern.reduced(i + away) ? 1 : 0;
      CHECK(unlike > kPart / 3);
    }
    if (op == comm::ReduceOp::kAverage) continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      int64_t missed = 0;
      for (int64_t i = 0; i < kPart; ++i)
        missed += pattern.given(rank, i) != (op == comm::ReduceOp::kSum ? 0 : 1) ? 1 : 0;
      CHECK(missed > kPart / kRanks / 4);
    }
  }
}
