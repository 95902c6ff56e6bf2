#include "groups/shm/result_writes.h"

#include <doctest/doctest.h>

using smp::groups::ResultWrites;
using std::chrono::microseconds;

namespace {

// Begins so many calls, whose results take so long by either way; how many go around the cache.
int go_around_of(ResultWrites& results, int calls, int through, int around) {
  int count = 0;
  for (int i = 0; i < calls; ++i) {
    const ResultWrites::Way way = results.next();
    if (way.timed != nullptr) way.timed->note(1 << 20, microseconds(way.around ? around : through));
    count += way.around;
  }
  return count;
}

}  // namespace

TEST_CASE("results that about fill the cache go around it where that is quicker") {
  ResultWrites results;
  CHECK(go_around_of(results, 15, 400, 300) == 4);  // of which the last four tried it
  CHECK(go_around_of(results, 28, 400, 300) == 28);
  CHECK(go_around_of(results, 4, 400, 300) == 0);  // and these the cache
  CHECK(go_around_of(results, 60, 300, 400) == 60);
  CHECK(go_around_of(results, 4, 300, 400) == 0);
  CHECK(go_around_of(results, 124, 300, 400) == 0);
  CHECK(go_around_of(results, 4, 300, 280) == 4);
  CHECK(go_around_of(results, 252, 300, 280) == 0);  // not by so little
  CHECK(go_around_of(results, 4, 300, 280) == 4);
  for (int i = 0; i < 3; ++i) {
    CHECK(go_around_of(results, 508, 300, 280) == 0);
    CHECK(go_around_of(results, 4, 300, 280) == 4);
  }
}

TEST_CASE("a rank that made nothing in calls leaves the way as it was") {
  ResultWrites results;
  for (int i = 0; i < 11; ++i) CHECK_FALSE(results.next().around);
  CHECK(go_around_of(results, 4, 400, 100) == 4);
  CHECK(go_around_of(results, 28, 400, 100) == 0);
}
