#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/times.h"
#include "smp/comm/thread_group.h"

using namespace smp;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

using Step = std::function<void(Communicator&)>;

Step sum_of(int64_t count, DType dtype, ReduceOp op, const char* label) {
  return [=](Communicator& comm) {
    std::vector<std::byte> in(size_t(count * bytes_of(dtype))), out(in.size());
    comm.all_reduce(in.data(), out.data(), count, dtype, op, label)->wait();
  };
}
Step gather_of(int64_t count, DType dtype, const char* label) {
  return [=](Communicator& comm) {
    std::vector<std::byte> in(size_t(count * bytes_of(dtype)));
    std::vector<std::byte> out(in.size() * size_t(comm.size()));
    comm.all_gather(in.data(), out.data(), count, dtype, label)->wait();
  };
}
Step broadcast_of(int64_t count, int root, const char* label) {
  return [=](Communicator& comm) {
    std::vector<float> x(static_cast<size_t>(count));
    comm.broadcast(x.data(), count, DType::kF32, root, label)->wait();
  };
}
Step send_of(int64_t count, DType dtype, int peer, const char* label) {
  return [=](Communicator& comm) {
    std::vector<std::byte> x(size_t(count * bytes_of(dtype)));
    comm.send(x.data(), count, dtype, peer, label)->wait();
    comm.barrier("after")->wait();
  };
}
Step recv_of(int64_t count, DType dtype, int peer, const char* label) {
  return [=](Communicator& comm) {
    std::vector<std::byte> x(size_t(count * bytes_of(dtype)));
    comm.recv(x.data(), count, dtype, peer, label)->wait();
  };
}

// What each rank's CommError says when each makes its own call.
std::vector<std::string> errors_of(const std::vector<Step>& calls, milliseconds timeout) {
  std::vector<std::string> errors(calls.size());
  std::atomic<int> ended{0};
  run_ranks(int(calls.size()),
            [&](Communicator& comm) {
              try {
                calls[size_t(comm.rank())](comm);
              } catch (const CommError& e) {
                errors[size_t(comm.rank())] = text_of(e);
              }
              ended.fetch_add(1);
              while (ended.load() < comm.size()) std::this_thread::yield();  // nobody leaves before
            },
            {timeout});
  return errors;
}

void check_mismatch(const Step& zero, const Step& one, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = errors_of({zero, one}, kNever);
  CHECK(errors[0] == "mismatch 1: " + text);
  CHECK(errors[1] == "mismatch 1: " + text);
  CHECK(std::chrono::steady_clock::now() - start < kSoon);
}

}  // namespace

TEST_CASE("calls that do not match end at once on both ranks, which are both named") {
  const DType f32 = DType::kF32;
  check_mismatch(sum_of(4096, f32, ReduceOp::kSum, "data.gradients"), gather_of(10, f32, "w"),
                 "rank 0: all_reduce #1 'data.gradients' of 4096 fp32 does not match "
                 "rank 1: all_gather #1 'w' of 10 fp32");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(8, DType::kF64, ReduceOp::kSum, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 8 fp64");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(8, f32, ReduceOp::kMax, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 8 fp32 (max)");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(100000, f32, ReduceOp::kSum, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 100000 fp32");
  check_mismatch(
      gather_of(1 << 20, f32, "x"), [](Communicator& c) { c.barrier("b")->wait(); },
      "rank 0: all_gather #1 'x' of 1048576 fp32 does not match "
      "rank 1: barrier #1 'b'");
  check_mismatch(broadcast_of(1 << 20, 0, "x"), broadcast_of(1 << 20, 1, "x"),
                 "rank 0: broadcast #1 'x' of 1048576 fp32 from rank 0 does not match "
                 "rank 1: broadcast #1 'x' of 1048576 fp32 from rank 1");
  check_mismatch(broadcast_of(0, 0, "x"), sum_of(0, f32, ReduceOp::kSum, "x"),
                 "rank 0: broadcast #1 'x' of 0 fp32 from rank 0 does not match "
                 "rank 1: all_reduce #1 'x' of 0 fp32");
  std::vector<float> x(8);
  auto to_root = [&](int root) -> Step {
    return [&, root](Communicator& c) {
      c.gather(x.data(), c.rank() == root ? x.data() : nullptr, 4, f32, root, "x")->wait();
    };
  };
  check_mismatch(to_root(0), to_root(1),
                 "rank 0: gather #1 'x' of 4 fp32 to rank 0 does not match "
                 "rank 1: gather #1 'x' of 4 fp32 to rank 1");
  check_mismatch([&](Communicator& c) { c.scatter(x.data(), x.data(), 4, f32, 0, "x")->wait(); },
                 [&](Communicator& c) {
                   std::vector<float> own(4);
                   c.reduce(own.data(), nullptr, 4, f32, ReduceOp::kProduct, 0, "x")->wait();
                 },
                 "rank 0: scatter #1 'x' of 4 fp32 from rank 0 does not match "
                 "rank 1: reduce #1 'x' of 4 fp32 (product) to rank 0");
  check_mismatch(send_of(4, f32, 1, "m"), recv_of(5, f32, 0, "m"),
                 "rank 0: send #1 'm' of 4 fp32 to rank 1 does not match "
                 "rank 1: recv #1 'm' of 5 fp32 from rank 0");
  check_mismatch(send_of(1 << 20, f32, 1, "m"), recv_of(1 << 20, DType::kI32, 0, "m"),
                 "rank 0: send #1 'm' of 1048576 fp32 to rank 1 does not match "
                 "rank 1: recv #1 'm' of 1048576 int32 from rank 0");
}

TEST_CASE("calls in another order are told from each other by their labels") {
  auto two = [](const char* first, const char* second) -> Step {
    return [=](Communicator& comm) {
      std::vector<float> a(10), b(10);
      const WorkPtr x = comm.all_reduce(a.data(), a.data(), 10, DType::kF32, ReduceOp::kSum, first);
      const WorkPtr y =
          comm.all_reduce(b.data(), b.data(), 10, DType::kF32, ReduceOp::kSum, second);
      x->wait();
      y->wait();
    };
  };
  check_mismatch(two("a", "b"), two("b", "a"),
                 "rank 0: all_reduce #1 'a' of 10 fp32 does not match "
                 "rank 1: all_reduce #1 'b' of 10 fp32");
}

TEST_CASE("among several ranks the odd one out is blamed") {
  const auto usual = sum_of(8, DType::kF32, ReduceOp::kSum, "x");
  auto after = [](const Step& last) -> Step {
    return [=](Communicator& comm) {
      comm.barrier("b")->wait();
      last(comm);
    };
  };
  const auto errors = errors_of({after(sum_of(9, DType::kF32, ReduceOp::kSum, "x")), after(usual),
                                 after(usual), after(usual)},
                                std::chrono::seconds(30));
  for (const std::string& error : errors) {
    CHECK(error.rfind("mismatch 0: rank 0: all_reduce #2 'x' of 9 fp32 does not match rank ", 0) ==
          0);
    CHECK(error.find(": all_reduce #2 'x' of 8 fp32") != std::string::npos);
  }
}

TEST_CASE("a call that one rank does not make times out and names that rank and its last call") {
  const auto errors =
      errors_of({sum_of(4096, DType::kF32, ReduceOp::kSum, "data.gradients"), [](Communicator&) {}},
                milliseconds(400));
  CHECK(errors[0] ==
        "timeout 1: rank 0: all_reduce #1 'data.gradients' of 4096 fp32 timed out after 0.4 s: "
        "rank 1 has not called it (it has made no call yet)");
  CHECK(errors[1] == "");
}

TEST_CASE("a group and those split off it may have a time-out of their own") {
  const auto errors = errors_of({[](Communicator& comm) {
                                   comm.set_timeout(milliseconds(200));
                                   comm.split({0, 1})->barrier("b")->wait();
                                 },
                                 [](Communicator&) {}},
                                kNever);
  CHECK(errors[0] ==
        "timeout 1: rank 0: barrier #1 'b' timed out after 0.2 s: rank 1 has not called it (it has "
        "made no call yet)");
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
      "rank 0: all_reduce #2 'x' of 8 fp32 timed out after 0.5 s: rank 1 has not called it (its "
      "last call: #1 recv 'm'); rank 1 waits for rank 2 (its last call: #1 barrier 'start')";
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
        "peer_lost 1: rank 0: barrier #2 'c': rank 1 has left the group without calling it "
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
                           "calling it (it has made no call yet)"
                         : "timeout 1: rank 0: barrier #1 'p' timed out after 0.3 s: rank 1 left "
                           "the group with an exception (it has made no call yet)"));
  }
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
        "aborted 1: rank 0: recv #1 'm' of 10 fp32 from rank 1: rank 1 failed while a call "
        "was under way");
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
                           "rank 0: recv #1 'm' of 4 fp32 from rank 1: its communicator was "
                           "destroyed before the call was complete",
                           CommError);
    world.barrier("b")->wait();
  });
}

TEST_CASE("processes: the death of a rank ends every call soon and is named") {
  for (const int victim : {0, 1, 2}) {
    const auto start = std::chrono::steady_clock::now();
    const Shared<std::atomic<int>> past_start;  // ranks
    const auto outcomes = run_processes(3, [&](Communicator& comm) {
      std::vector<int> others;
      for (int rank = 0; rank < 3; ++rank)
        if (rank != victim) others.push_back(rank);
      std::unique_ptr<Communicator> pair;
      if (comm.rank() != victim) pair = comm.split(others);
      comm.barrier("start")->wait();
      past_start->fetch_add(1);
      while (comm.rank() == victim && past_start->load() < 3)
        std::this_thread::sleep_for(milliseconds(1));
      if (comm.rank() == victim) raise(SIGKILL);
      // One survivor waits for the dead rank, the other one for the first.
      std::vector<float> x(1 << 20);
      if (comm.rank() == others[0])
        comm.all_reduce(x.data(), x.data(), 1 << 20, DType::kF32, ReduceOp::kSum, "x")->wait();
      pair->barrier("b")->wait();
      return std::string("went on");
    });
    CHECK(std::chrono::steady_clock::now() - start < kSoon);
    const int first = victim == 0 ? 1 : 0, second = victim == 2 ? 1 : 2;
    const std::string v = std::to_string(victim);
    CHECK(WTERMSIG(outcomes[size_t(victim)].status) == SIGKILL);
    CHECK(outcomes[size_t(first)].said == "peer_lost " + v + ": rank " + std::to_string(first) +
                                              ": all_reduce #2 'x' of 1048576 fp32: rank " + v +
                                              " died");
    CHECK(outcomes[size_t(second)].said == "peer_lost " + v + ": rank " + std::to_string(second) +
                                               ": barrier #1 'b': rank " + v + " died");
  }
}

TEST_CASE("processes: an exception that ends a rank is not a departure in good order") {
  const auto outcomes = run_processes(3, [](Communicator& comm) -> std::string {
    struct Pause {
      ~Pause() { std::this_thread::sleep_for(milliseconds(200)); }
    };
    const Pause before_the_end;
    const auto pair = comm.split(comm.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2});
    if (comm.rank() == 1) throw std::logic_error("the first cause");
    if (comm.rank() == 0) pair->barrier("p")->wait();
    comm.barrier("w")->wait();
    return "went on";
  });
  CHECK(outcomes[0].said == "aborted 1: rank 0: barrier #1 'p': rank 1 ended with an exception");
  CHECK(outcomes[1].said == "exception: the first cause");
  CHECK(outcomes[2].said == "aborted 1: rank 2: barrier #1 'w': rank 1 ended with an exception");
}

TEST_CASE(
    "processes: a rank that exits without a word counts as dead, one that says goodbye does not") {
  const auto outcomes = run_processes(2, [](Communicator& comm) {
    comm.barrier("b")->wait();
    if (comm.rank() == 1) _exit(3);
    comm.barrier("c")->wait();
    return std::string("went on");
  });
  CHECK(outcomes[0].said == "peer_lost 1: rank 0: barrier #2 'c': rank 1 died");
  CHECK(WEXITSTATUS(outcomes[1].status) == 3);
}

TEST_CASE("processes: a stopped rank is named when the time is over") {
  std::vector<Child> children;
  const std::string job_id = fresh_job_id();
  for (int rank = 0; rank < 3; ++rank)
    children.emplace_back([&, rank] {
      SharedMemoryOptions own;
      own.rank = rank;
      own.size = 3;
      own.job_id = job_id;
      own.job_key = "the key of the tests";
      const auto world = connect_shared_memory(own);
      const auto pair = rank == 1 ? nullptr : world->split({0, 2});
      world->barrier("start")->wait();
      if (rank == 1) raise(SIGSTOP);
      if (rank == 0) {
        pair->barrier("rank 2 has called")->wait();
        world->set_timeout(milliseconds(600));
      }
      const auto start = std::chrono::steady_clock::now();
      const WorkPtr next = world->barrier("next");
      if (rank == 2) pair->barrier("rank 2 has called")->wait();
      try {
        next->wait();
      } catch (const CommError& e) {
        const auto took = std::chrono::steady_clock::now() - start;
        const bool in_time = (rank == 2 || took > milliseconds(500)) && took < kSoon;
        return text_of(e) + (in_time ? "" : " (not in time)");
      }
      return std::string("went on");
    });
  const std::string said[] = {children[0].join().said, children[2].join().said};
  kill(children[1].pid(), SIGKILL);
  children[1].join();
  const std::string cause =
      "barrier #2 'next' timed out after 0.6 s: rank 1 has not called it (its last call: #1 "
      "barrier 'start')";
  for (const std::string& s : said) {
    CHECK(s.rfind("timeout 1: rank ", 0) == 0);
    CHECK(s.find(cause) != std::string::npos);
    CHECK(s.find("(not in time)") == std::string::npos);
  }
}

TEST_CASE("processes: a mismatch ends both ranks with the same text") {
  const auto outcomes = run_processes(2, [](Communicator& comm) {
    std::vector<float> x(4096);
    comm.all_reduce(x.data(), x.data(), comm.rank() == 0 ? 4096 : 1024, DType::kF32, ReduceOp::kSum,
                    "data.gradients")
        ->wait();
    return std::string("went on");
  });
  for (const Outcome& outcome : outcomes)
    CHECK(outcome.said ==
          "mismatch 1: rank 0: all_reduce #1 'data.gradients' of 4096 fp32 does not match rank 1: "
          "all_reduce #1 'data.gradients' of 1024 fp32");
}
