#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "smp/launcher/job/progress_watch.h"
#include "smp/launcher/supervision/output_watch.h"
#include "smp/plan/runinfo/progress_page.h"

using namespace smp;
using namespace smp::job;
using namespace smp::runinfo;
using namespace smp::supervision;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const ProgressWatch::Clock::time_point kStart{std::chrono::hours(1)};

RankProgress at(int64_t step, bool waiting, int64_t collectives, uint64_t posts = 1) {
  return {.posts = posts,
          .step = step,
          .phase = "forward",
          .collectives = collectives,
          .collective = "x",
          .waiting = waiting};
}

HangLimit after(milliseconds time) { return {time, false}; }

}  // namespace

TEST_CASE("what a rank posts is read as it was posted") {
  auto page = std::make_unique<ProgressPage>();
  CHECK(!read_progress(*page));
  ProgressPost post(*page);
  post.enter("setup", -1, -1, -1);
  post.enter("backward", 7, 2, 3);
  post.begin_collective("data.gradients");
  post.begin_collective("a label that is longer than the place for it");
  post.wait(true);
  post.end_step(6, 200, 2.5, 1234.5, 0.25);
  const auto progress = read_progress(*page);
  REQUIRE(progress);
  CHECK(progress->posts == 6);
  CHECK(progress->step == 7);
  CHECK(progress->microbatch == 2);
  CHECK(progress->layer == 3);
  CHECK(progress->phase == "backward");
  CHECK(progress->collectives == 2);
  CHECK(progress->collective == "a label that is longer than the");
  CHECK(progress->waiting);
  CHECK(progress->steps_done == 6);
  CHECK(progress->steps == 200);
  CHECK(progress->loss == 2.5);
  CHECK(progress->tokens_per_s == 1234.5);
  CHECK(progress->step_s == 0.25);
}

TEST_CASE("a reader never sees half of a post, and one left half-way is read all the same") {
  auto page = std::make_unique<ProgressPage>();
  std::atomic<bool> over{false};
  std::thread rank([&] {
    ProgressPost post(*page);
    for (int64_t i = 0; !over; ++i) {
      post.enter(i % 2 == 0 ? "even" : "odd", i, i, i);
      std::this_thread::sleep_for(std::chrono::microseconds(1));  // a rank computes in between
    }
  });
  int64_t read = 0;
  while (read < 200'000) {
    const auto progress = read_progress(*page);
    if (!progress) continue;
    ++read;
    REQUIRE(progress->step == progress->layer);
    REQUIRE(progress->phase == (progress->step % 2 == 0 ? "even" : "odd"));
  }
  over = true;
  rank.join();
  page->version.fetch_add(1);
  CHECK(read_progress(*page));
}

TEST_CASE("ranks that stand still are told once, with the one that the others wait for") {
  ProgressWatch watch(after(seconds(10)), 3, kStart);
  for (int rank : {0, 1, 2}) watch.see(rank, at(3, rank != 1, 40 + (rank != 1)), rank == 1, kStart);
  CHECK(!watch.hang(kStart + seconds(9)));
  const auto hang = watch.hang(kStart + seconds(10));
  REQUIRE(hang);
  CHECK(hang->behind == std::vector<int>{1});
  CHECK(text_of(*hang) ==
        "no rank has made progress for 10.0 s; the others wait for rank 1\n  rank 1 is at step 3: "
        "forward; not waiting, last collective 40 (x); stopped by a signal\n  ranks 0, 2 are at "
        "step 3: forward; waits in collective 41 (x)");
  CHECK(!watch.hang(kStart + seconds(99)));
  CHECK(!watch.recovery());
  watch.see(1, at(4, false, 41, 2), false, kStart + seconds(100));
  CHECK(watch.recovery() == seconds(100));
  CHECK(!watch.recovery());
  CHECK(!watch.hang(kStart + seconds(109)));
  CHECK(watch.hang(kStart + seconds(110)));
}

TEST_CASE(
    "where all wait: an earlier step, or a few with fewer collectives, else nobody is blamed") {
  const auto behind = [](const std::vector<RankProgress>& ranks) {
    ProgressWatch watch(after(seconds(1)), ranks.size(), kStart);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      watch.see(static_cast<int>(rank), ranks[rank], false, kStart);
    return watch.hang(kStart + seconds(1))->behind;
  };
  const std::vector<int> nobody;
  CHECK(behind({at(3, true, 9), at(2, true, 9), at(3, true, 9)}) == std::vector<int>{1});
  CHECK(behind({at(3, true, 9), at(3, true, 9), at(3, true, 8)}) == std::vector<int>{2});
  CHECK(behind({at(3, true, 9), at(3, true, 8)}) == nobody);  // stages of a pipeline
  CHECK(behind({at(3, true, 9), at(3, true, 9)}) == nobody);
  CHECK(behind({at(3, false, 9), at(3, false, 9)}) == nobody);
  CHECK(behind({at(0, false, 0)}) == nobody);
}

TEST_CASE("nothing is guessed of ranks that post nothing, and those that ended are left out") {
  ProgressWatch watch(after(seconds(1)), 3, kStart);
  watch.see(0, at(1, true, 1), false, kStart);
  watch.see(1, at(1, true, 1), false, kStart);
  watch.see(2, std::nullopt, false, kStart);
  CHECK(!watch.hang(kStart + seconds(99)));
  watch.forget(2, kStart + seconds(99));
  CHECK(!watch.hang(kStart + milliseconds(99'999)));
  const auto hang = watch.hang(kStart + seconds(100));
  REQUIRE(hang);
  CHECK(hang->places.size() == 1);
  watch.forget(0, kStart + seconds(100));
  watch.forget(1, kStart + seconds(100));
  CHECK(!watch.hang(kStart + seconds(200)));
}

TEST_CASE("time in which nobody looked counts against no rank") {
  ProgressWatch watch(after(seconds(10)), 1, kStart);
  watch.see(0, at(1, true, 1), false, kStart);
  watch.overlook(seconds(60), kStart + seconds(60));
  CHECK(!watch.hang(kStart + seconds(69)));
  CHECK(watch.silent(kStart + seconds(69)) == seconds(9));
  REQUIRE(watch.hang(kStart + seconds(70)));
  watch.overlook(seconds(30), kStart + seconds(100));
  watch.see(0, at(2, true, 2, 2), false, kStart + seconds(101));
  CHECK(watch.recovery() == seconds(11));
  // What was seen at the end of that time is no sign of life from the future.
  watch.overlook(seconds(50), kStart + seconds(102));
  CHECK(watch.silent(kStart + seconds(103)) == seconds(1));
}

TEST_CASE("the limit by itself: ten minutes, then ten of the longest of the last steps") {
  ProgressWatch watch({}, 1, kStart);
  CHECK(watch.limit() == seconds(600));
  RankProgress progress = at(2, false, 1);
  progress.steps_done = 1;
  progress.step_s = 0.5;
  watch.see(0, progress, false, kStart);
  CHECK(watch.limit() == seconds(60));
  progress.steps_done = 2;
  progress.step_s = 20;
  watch.see(0, progress, false, kStart);
  CHECK(watch.limit() == seconds(200));
  CHECK(!ProgressWatch({std::nullopt, true}, 1, kStart).hang(kStart + std::chrono::hours(9)));
}

TEST_CASE("ranks that write nothing are told once, the longest silent first") {
  OutputWatch watch(seconds(60), 3, kStart);
  watch.wrote(0, kStart + seconds(10));
  watch.wrote(2, kStart + seconds(10));
  CHECK(!watch.hang(kStart + milliseconds(69'999)));
  const auto hang = watch.hang(kStart + seconds(70));
  REQUIRE(hang);
  CHECK(text_of(*hang) ==
        "no rank has written anything for 1 min 0 s\n"
        "  rank 1 is silent for 70 s\n"
        "  ranks 0, 2 are silent for 60 s");
  CHECK(!watch.hang(kStart + seconds(500)));
  CHECK(!watch.recovery());
  watch.wrote(1, kStart + seconds(110));
  CHECK(watch.recovery() == seconds(100));
  watch.overlook(seconds(60), kStart + seconds(170));
  CHECK(!watch.hang(kStart + seconds(229)));
  REQUIRE(watch.hang(kStart + seconds(230)));
  watch.wrote(0, kStart + seconds(300));
  watch.overlook(seconds(60), kStart + seconds(301));
  const auto again = watch.hang(kStart + seconds(361));
  REQUIRE(again);
  CHECK(again->silent == seconds(60));
  CHECK(again->places.back().where == "silent for 60 s");
  for (const int rank : {0, 1, 2}) watch.forget(rank, kStart + seconds(400));
  CHECK(!watch.hang(kStart + seconds(999)));
  CHECK(!OutputWatch({}, 1, kStart).hang(kStart + std::chrono::hours(9)));
}
