#include "result_writes.h"

#include <doctest/doctest.h>

#include <thread>

using smp::shm::ResultWrites;
using namespace std::chrono_literals;

namespace {

// Makes so many calls, whose results take so long by either way; how many went around the cache.
int go_around_of(ResultWrites& results, int calls, std::chrono::microseconds through,
                 std::chrono::microseconds around) {
  int count = 0;
  for (int i = 0; i < calls; ++i) {
    const ResultWrites::Way way = results.next();
    if (way.timed != nullptr)
      way.make(1 << 20, [&] { std::this_thread::sleep_for(way.around ? around : through); });
    count += way.around;
  }
  return count;
}

}  // namespace

TEST_CASE("results that fill half of the cache go around it where that is quicker") {
  ResultWrites results;
  CHECK(go_around_of(results, 15, 4000us, 1000us) == 4);  // of which the last four tried it
  CHECK(go_around_of(results, 508, 4000us, 1000us) == 508);
  CHECK(go_around_of(results, 4, 4000us, 1000us) == 0);      // and these the cache
  CHECK(go_around_of(results, 508, 1000us, 4000us) == 508);  // no longer
  CHECK(go_around_of(results, 4, 1000us, 4000us) == 0);
  CHECK(go_around_of(results, 508, 1000us, 4000us) == 0);
}
