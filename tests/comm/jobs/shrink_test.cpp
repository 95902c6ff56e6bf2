#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/survivors.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;
using std::chrono::milliseconds;

TEST_CASE("processes: those who survive a death go on as a job of their own, and do so again") {
  for (const int victim : {0, 2, 3}) {
    const auto outcomes = run_processes(4, [victim](Communicator& comm) -> std::string {
      std::string said = go_on_after(comm, [&](Communicator& old) {
        if (old.rank() == victim) raise(SIGKILL);
        use(old);
      });
      return said;
    });
    std::vector<int> former = {0, 1, 2, 3};
    former.erase(former.begin() + victim);
    for (int rank = 0; rank < 4; ++rank)
      if (rank != victim)
        CHECK(outcomes[size_t(rank)].said == fmt::format("{} went on", fmt::join(former, " ")));
  }
  const auto twice = run_processes(4, [](Communicator& comm) -> std::string {
    std::string said;
    const auto rest = shrink_after(comm, [](Communicator& old) {
      if (old.rank() == 1) raise(SIGKILL);
      use(old);
    });
    said = go_on_after(*rest.world, [](Communicator& old) {
      if (old.rank() == 0) raise(SIGKILL);
      use(old);
    });
    return said;
  });
  CHECK(twice[2].said == "1 2 went on");
  CHECK(twice[3].said == "1 2 went on");
}

TEST_CASE("processes: after an abort all of them go on") {
  const auto outcomes = run_processes(3, [](Communicator& comm) {
    return go_on_after(comm, [](Communicator& old) {
      if (old.rank() == 1) old.abort("enough");
      use(old);
    });
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.said == "0 1 2 went on");
}

TEST_CASE("processes: who does not come is left out, but half of a job does not go on") {
  for (const int who_come : {2, 3}) {
    ProcessOptions options;
    options.job_id = fresh_job_id();
    const Shared<std::atomic<int>> ended;
    const auto outcomes = run_processes(
        4,
        [&](Communicator& comm) -> std::string {
          comm.barrier("start")->wait();
          if (comm.rank() >= who_come) {
            while (*ended < who_come) std::this_thread::sleep_for(milliseconds(5));
            return "stayed away";
          }
          std::string said;
          try {
            const Survivors rest = comm.shrink(milliseconds(1500));
            said = fmt::format("{} of {}", rest.world->rank(), rest.world->size());
          } catch (const CommError& e) {
            said = text_of(e);
          }
          ++*ended;
          return said;
        },
        options);
    for (int rank = 0; rank < who_come; ++rank)
      CHECK(outcomes[size_t(rank)].said ==
            (who_come == 3
                 ? fmt::format("{} of 3", rank)
                 : fmt::format("timeout {}: rank {}: only ranks 0, 1 of job '{}' called shrink "
                               "within 1.5 s, and ranks 2, 3 may still be running: more than half "
                               "of the ranks must call it",
                               rank == 0 ? 2 : -1, rank, options.job_id)));
  }
}

TEST_CASE("ranks that are threads of one process cannot outlive each other") {
  run_ranks(2, [](Communicator& comm) {
    CHECK_THROWS_WITH_AS(comm.shrink(milliseconds(100)),
                         "shrink needs ranks that are processes: these ranks are threads",
                         std::logic_error);
  });
}
