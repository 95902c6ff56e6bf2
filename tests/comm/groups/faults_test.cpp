#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/calls_apart.h"
#include "comm/times.h"
#include "smp/comm/jobs/thread_group.h"
#include "waiting/observation.h"
#include "waiting/process_state.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;
using std::chrono::milliseconds;

TEST_CASE("a call that one rank does not make times out and names that rank and its last call") {
  const auto errors =
      errors_of({sum_of(4096, DType::kF32, ReduceOp::kSum, "data.gradients"), [](Communicator&) {}},
                milliseconds(400));
  CHECK(errors[0] ==
        "timeout 1: rank 0: all_reduce #1 'data.gradients' of 4096 fp32 timed out after 0.4 s: "
        "rank 1 has not made this call (no call yet)");
  CHECK(errors[1] == "");
}

TEST_CASE("a rank that had no CPU itself has not looked at its mates meanwhile") {
  waiting::Observation observation;
  const auto start = waiting::Observation::Clock::now();
  for (const int ms : {0, 20, 100, 10'000, 10'020}) observation.observe(start + milliseconds(ms));
  CHECK(observation.since() == start);
  CHECK(observation.observed_for() == milliseconds(20 + 50 + 50 + 20));
}

TEST_CASE("the kernel tells who is stopped from who has no CPU: of others time must") {
  using State = waiting::ProcessState;
  constexpr milliseconds kWithin{150}, kShort{20}, kLong{1000};
  const auto stopped = [&](State state, bool has_heartbeat, milliseconds observed_for) {
    return waiting::is_stopped_by(state, has_heartbeat, observed_for, kWithin);
  };
  for (const bool has_heartbeat : {false, true}) {
    CHECK(stopped(State::kStopped, has_heartbeat, kShort) == std::nullopt);
    CHECK(stopped(State::kStopped, has_heartbeat, milliseconds(100)) == true);
    CHECK(stopped(State::kRunnable, has_heartbeat, kLong) == false);
  }
  for (const State state : {State::kUnknown, State::kAsleep}) {
    CHECK(stopped(state, true, kLong) == false);
    CHECK(stopped(state, false, kShort) == std::nullopt);
    CHECK(stopped(state, false, kWithin) == true);
  }
}

TEST_CASE("the state of another process is what the kernel says of its threads") {
  const auto state_of_child = [](void (*run)(), bool stop, waiting::ProcessState awaited) {
    const pid_t child = fork();
    if (child == 0) {
      run();
      _exit(0);
    }
    if (stop) kill(child, SIGSTOP);
    const auto limit = std::chrono::steady_clock::now() + kNever;
    waiting::ProcessState state = waiting::ProcessState::kUnknown;
    while (state != awaited && std::chrono::steady_clock::now() < limit) {
      state = waiting::state_of(child);
      std::this_thread::sleep_for(milliseconds(1));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CHECK(waiting::state_of(child) == waiting::ProcessState::kUnknown);
    return state == awaited;
  };
  const auto sleeps = [] { pause(); };
  const auto spins = [] {
    for (volatile bool on = true; on;) {
    }
  };
  CHECK(state_of_child(sleeps, false, waiting::ProcessState::kAsleep));
  CHECK(state_of_child(sleeps, true, waiting::ProcessState::kStopped));
  CHECK(state_of_child(spins, false, waiting::ProcessState::kRunnable));
  CHECK(state_of_child(spins, true, waiting::ProcessState::kStopped));
  CHECK(waiting::state_of(0) == waiting::ProcessState::kUnknown);
  CHECK(waiting::own_pid_namespace() != 0);
}

TEST_CASE("a group and those split off it may have a time-out of their own") {
  const auto errors = errors_of({[](Communicator& comm) {
                                   comm.set_timeout(milliseconds(200));
                                   comm.split({0, 1})->barrier("b")->wait();
                                 },
                                 [](Communicator&) {}},
                                kNever);
  CHECK(errors[0] ==
        "timeout 1: rank 0: barrier #1 'b' timed out after 0.2 s: rank 1 has not made this call "
        "(no call yet)");
}

TEST_CASE("a timeout ends the calls of all other ranks, and follows who waits for whom") {
  // 0 waits for 1, which waits for a message of 2, which does nothing.
  std::atomic<bool> waits{false};
  const auto errors = errors_of({[&](Communicator& comm) {
                                   comm.barrier("start")->wait();
                                   while (!waits) std::this_thread::yield();
                                   comm.set_timeout(milliseconds(500));
                                   sum_of(8, DType::kF32, ReduceOp::kSum, "x")(comm);
                                 },
                                 [&](Communicator& comm) {
                                   comm.barrier("start")->wait();
                                   float x[3] = {};
                                   const WorkPtr work = comm.recv(x, 3, DType::kF32, 2, "m");
                                   waits = true;
                                   work->wait();
                                 },
                                 [](Communicator& comm) { comm.barrier("start")->wait(); }},
                                kNever);
  const std::string cause =
      "rank 0: all_reduce #2 'x' of 8 fp32 timed out after 0.5 s: rank 1 has not made this call "
      "(its last call: #1 recv 'm'); rank 1 waits for rank 2 (its last call: #1 barrier 'start')";
  CHECK(errors[0] == "timeout 2: " + cause);
  CHECK(errors[1] == "timeout 2: rank 1: recv #1 'm' of 3 fp32 from rank 2: " + cause);
}

TEST_CASE("a rank that leaves while it is waited for is named") {
  std::string error;
  run_ranks(2, [&](Communicator& comm) {
    comm.barrier("b")->wait();
    if (comm.rank() == 1) return;
    try {
      comm.barrier("c")->wait();
    } catch (const CommError& e) {
      error = text_of(e);
    }
  });
  CHECK(error ==
        "peer_lost 1: rank 0: barrier #2 'c': rank 1 has left the group without making the call "
        "(its last call: #1 barrier 'b')");
}

TEST_CASE("the exception of one rank ends the calls of the others and comes back") {
  std::vector<std::string> others(4);
  CHECK_THROWS_WITH_AS(
      run_ranks(4,
                [&](Communicator& comm) {
                  const auto pair =
                      comm.split(comm.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
                  if (comm.rank() == 2) throw std::logic_error("the first cause");
                  try {
                    // 0 and 1 wait for 2 in the world; 3 waits for it in their pair.
                    if (comm.rank() == 3) pair->barrier("p")->wait();
                    comm.barrier("w")->wait();
                  } catch (const CommError& e) {
                    others[size_t(comm.rank())] = text_of(e);
                    throw;
                  }
                }),
      "the first cause", std::logic_error);
  CHECK(others[0] == "aborted 2: rank 0: barrier #1 'w': rank 2 failed: the first cause");
  CHECK(others[1] == "aborted 2: rank 1: barrier #1 'w': rank 2 failed: the first cause");
  CHECK(others[3] == "aborted 2: rank 3: barrier #1 'p': rank 2 failed: the first cause");
}

TEST_CASE("a communicator that an exception destroys has not left: its peers hear the cause") {
  struct Pause {
    ~Pause() { std::this_thread::sleep_for(milliseconds(200)); }
  };
  std::string error;
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [&](Communicator& comm) {
                                   const Pause before_the_catch;
                                   const auto pair = comm.split({0, 1});
                                   if (comm.rank() == 1) throw std::logic_error("the first cause");
                                   try {
                                     pair->barrier("p")->wait();
                                   } catch (const CommError& e) {
                                     error = text_of(e);
                                   }
                                 }),
                       "the first cause", std::logic_error);
  CHECK(error == "aborted 1: rank 0: barrier #1 'p': rank 1 failed: the first cause");
}

TEST_CASE("a rank that survives its exception is named when the time is over, or when it ends") {
  for (const bool ends : {false, true}) {
    std::string error;
    std::atomic<bool> threw{false}, heard{false};
    run_ranks(2,
              [&](Communicator& comm) {
                try {
                  const auto pair = comm.split({0, 1});
                  if (comm.rank() == 1) throw std::logic_error("not the end");
                  while (!threw) std::this_thread::yield();
                  if (!ends) pair->set_timeout(milliseconds(300));
                  pair->barrier("p")->wait();
                } catch (const CommError& e) {
                  error = text_of(e);
                  heard = true;
                } catch (const std::logic_error&) {
                  threw = true;
                  while (!ends && !heard) std::this_thread::yield();
                }
              },
              {kNever});
    CHECK(error == (ends ? "peer_lost 1: rank 0: barrier #1 'p': rank 1 has left the group without "
                           "making the call (no call yet)"
                         : "timeout 1: rank 0: barrier #1 'p' timed out after 0.3 s: rank 1 left "
                           "the group with an exception (no call yet)"));
  }
}

TEST_CASE("a group tells without a call what has ended it, and only of itself") {
  run_ranks(2, [](Communicator& comm) {
    const auto group = comm.split({0, 1});
    CHECK(!group->error());
    comm.barrier("both have looked")->wait();
    if (comm.rank() == 1) group->abort("enough");
    while (!group->error()) std::this_thread::yield();
    CHECK(group->error()->kind == CommError::Kind::kAborted);
    CHECK(group->error()->culprit == 1);
    CHECK(std::string(group->error()->what()) == "rank 1 aborted: enough");
    CHECK(!comm.error());
    comm.barrier("the end")->wait();
  });
}

TEST_CASE("abort after a failure does not hide its cause") {
  std::string error;
  std::atomic<bool> aborted{false};
  CHECK_THROWS_AS(run_ranks(3,
                            [&](Communicator& comm) {
                              if (comm.rank() == 0) throw std::logic_error("the first cause");
                              if (comm.rank() == 1) {
                                CHECK_THROWS_AS(comm.barrier("b")->wait(), CommError);
                                comm.abort("what I heard");
                                aborted = true;
                                return;
                              }
                              while (!aborted) std::this_thread::yield();
                              try {
                                comm.barrier("b")->wait();
                              } catch (const CommError& e) {
                                error = text_of(e);
                              }
                            }),
                  std::logic_error);
  CHECK(error == "aborted 0: rank 2: barrier #1 'b': rank 0 failed: the first cause");
}

TEST_CASE("an exception gives up the calls that are under way before it frees their buffers") {
  std::string error;
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [&](Communicator& comm) {
                                   std::vector<float> x(1 << 20), y(1 << 20);
                                   const WorkPtr sum =
                                       comm.all_reduce(x.data(), x.data(), 1 << 20, DType::kF32,
                                                       ReduceOp::kSum, "x");
                                   const WorkPtr message =
                                       comm.recv(y.data(), 10, DType::kF32, 1 - comm.rank(), "m");
                                   if (comm.rank() == 1) throw std::logic_error("out of luck");
                                   try {
                                     message->wait();
                                   } catch (const CommError& e) {
                                     error = text_of(e);
                                   }
                                 }),
                       "out of luck", std::logic_error);
  CHECK(error ==
        "aborted 1: rank 0: recv #1 'm' of 10 fp32 from rank 1: rank 1 failed during a call");
}

TEST_CASE("abort ends a group and those split off it, and no other") {
  std::vector<std::string> errors(3);
  std::atomic<int> calls{0};
  run_ranks(3, [&](Communicator& world) {
    const auto group = world.split({0, 1, 2});
    const auto inner = group->split({0, 1, 2});
    if (world.rank() == 0) {
      while (calls.load() < 2) std::this_thread::yield();
      group->abort("enough");
    }
    try {
      if (world.rank() != 0) {
        const WorkPtr work = inner->barrier("b");
        calls.fetch_add(1);
        work->wait();
      }
      group->barrier("c")->wait();
    } catch (const CommError& e) {
      errors[size_t(world.rank())] = text_of(e);
    }
    CHECK_THROWS_AS(group->barrier("later")->wait(), CommError);
    int32_t x = 1;
    world.all_reduce(&x, &x, 1, DType::kI32, ReduceOp::kSum, "x")->wait();
    CHECK(x == 3);
  });
  CHECK(errors[0] == "aborted 0: rank 0: barrier #1 'c': rank 0 aborted: enough");
  CHECK(errors[1] == "aborted 0: rank 1: barrier #1 'b': rank 0 aborted: enough");
  CHECK(errors[2] == "aborted 0: rank 2: barrier #1 'b': rank 0 aborted: enough");
}

TEST_CASE("a communicator that is destroyed with a call under way ends it") {
  run_ranks(2, [](Communicator& world) {
    auto group = world.split({0, 1});
    float x[4] = {};
    WorkPtr work;
    if (world.rank() == 0) work = group->recv(x, 4, DType::kF32, 1, "m");
    group.reset();
    if (work)
      CHECK_THROWS_WITH_AS(work->wait(),
                           "rank 0: recv #1 'm' of 4 fp32 from rank 1: the communicator was "
                           "destroyed before the call was complete",
                           CommError);
    world.barrier("b")->wait();
  });
}
