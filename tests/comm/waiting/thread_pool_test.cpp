#include "waiting/thread_pool.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/any_call.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"

// Threads that help a rank to sum and copy.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

TEST_CASE("helpers: every piece is made once, by one of them, call after call") {
  waiting::ThreadPool pool(1);
  for (int round = 0; round < 2000; ++round) {
    if (round == 1000) pool.set_count(3);
    const int pieces = 1 + round % 37;
    std::vector<int> made(size_t(pieces), 0);  // each by one thread
    pool.run(pieces, [&](int i) { ++made[size_t(i)]; });
    CHECK(made == std::vector<int>(size_t(pieces), 1));
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // they sleep
  }
}

TEST_CASE(
    "helpers: as many as a rank has CPUs beside two, one of two, and no more than are of use") {
  CHECK(waiting::default_pool_threads(2, 2) == 0);
  CHECK(waiting::default_pool_threads(2, 8) == 0);
  CHECK(waiting::default_pool_threads(24, 8) == 1);
  CHECK(waiting::default_pool_threads(32, 8) == 2);
  CHECK(waiting::default_pool_threads(16, 8) == 1);
  CHECK(waiting::default_pool_threads(16, 3) == 3);
  CHECK(waiting::default_pool_threads(224, 8) == 7);
}

TEST_CASE("helpers: SMP_COMM_THREADS is a number from 1 to 64, or not set") {
  struct Unset {
    ~Unset() { ::unsetenv("SMP_COMM_THREADS"); }
  } const unset;
  ::unsetenv("SMP_COMM_THREADS");
  CHECK(read_comm_threads() == 0);
  ::setenv("SMP_COMM_THREADS", "8", 1);
  CHECK(read_comm_threads() == 8);
  for (const char* const wrong : {"0", "65", "-1"}) {
    ::setenv("SMP_COMM_THREADS", wrong, 1);
    CHECK_THROWS_WITH_AS(
        read_comm_threads(),
        (std::string("SMP_COMM_THREADS=") + wrong + ": expected a whole number from 1 to 64")
            .c_str(),
        ConfigError);
  }
  ::setenv("SMP_COMM_THREADS", "many", 1);
  CHECK_THROWS_AS(read_comm_threads(), ConfigError);
}

TEST_CASE("helpers: long calls that several threads of each rank make give what fp64 gives") {
  for (const int size : {2, 3, 5}) {
    const auto program = [](Communicator& comm) {
      SymmetricRoom room(comm);
      for (const CollectiveOp op :
           {CollectiveOp::kAllReduce, CollectiveOp::kReduceScatter, CollectiveOp::kAllGather})
        for (const bool in_place : {false, true})
          for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
            AnyCall call;
            call.op = op, call.dtype = dtype, call.in_place = in_place, call.room = &room;
            call.count = 700'001;
            ++call.salt;
            CHECK_MESSAGE(wrong_elements(comm, call) == 0, text_of(call));
          }
    };
    run_ranks(size, program, {.threads = 4});
  }
}
