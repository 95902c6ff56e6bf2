#include "groups/shm/result_writes.h"

#include <doctest/doctest.h>

using smp::groups::ResultWrites;
using std::chrono::microseconds;

namespace {

// Begins so many calls, whose results take so long by either way; how many go around the cache.
int count_non_temporal(ResultWrites& results, int calls, int through, int non_temporal) {
  int count = 0;
  for (int i = 0; i < calls; ++i) {
    const ResultWrites::StorePolicy policy = results.next();
    if (policy.timed != nullptr)
      policy.timed->note(1 << 20, microseconds(policy.non_temporal ? non_temporal : through));
    count += policy.non_temporal;
  }
  return count;
}

}  // namespace

TEST_CASE("results that about fill the cache go around it where that is quicker") {
  ResultWrites results;
  CHECK(count_non_temporal(results, 15, 400, 300) == 4);  // of which the last four tried it
  CHECK(count_non_temporal(results, 28, 400, 300) == 28);
  CHECK(count_non_temporal(results, 4, 400, 300) == 0);  // and these the cache
  CHECK(count_non_temporal(results, 60, 300, 400) == 60);
  CHECK(count_non_temporal(results, 4, 300, 400) == 0);
  CHECK(count_non_temporal(results, 124, 300, 400) == 0);
  CHECK(count_non_temporal(results, 4, 300, 280) == 4);
  CHECK(count_non_temporal(results, 252, 300, 280) == 0);  // not by so little
  CHECK(count_non_temporal(results, 4, 300, 280) == 4);
  for (int i = 0; i < 3; ++i) {
    CHECK(count_non_temporal(results, 508, 300, 280) == 0);
    CHECK(count_non_temporal(results, 4, 300, 280) == 4);
  }
}

TEST_CASE("a rank that made nothing in calls leaves the way as it was") {
  ResultWrites results;
  for (int i = 0; i < 11; ++i) CHECK_FALSE(results.next().non_temporal);
  CHECK(count_non_temporal(results, 4, 400, 100) == 4);
  CHECK(count_non_temporal(results, 28, 400, 100) == 0);
}
