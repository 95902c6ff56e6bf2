#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;
using std::chrono::milliseconds;

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

namespace {

// What may still be written of what a rank sums for another that has given up.
constexpr int64_t kPieceBytes = 128 << 10;

constexpr double kSoonMs = milliseconds(kSoon).count();

// Where the page begins after the one of `address`.
void* next_page(const void* address) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) / page * page + page);
}

void* unreadable = nullptr;

void stop_until_it_is_readable(int) {
  raise(SIGSTOP);
  mprotect(unreadable, size_t(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE);
}

// What rank 0 of two says of rank 1, which stops while it sums rank 0's part: rank 0 is stopped
// until then, and of what rank 1 adds there its own is memory that it may not read. When rank 0 has
// given up rank 1 goes on.
std::string stopped_at_the_sum_of_another(milliseconds timeout, double& milliseconds_to_hear) {
  constexpr int64_t kPart = 1 << 18;
  const std::string job_id = fresh_job_id();
  const Shared<std::atomic<bool>> is_stopped, has_heard, is_over;
  const Shared<std::atomic<double>> took;
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank)
    children.emplace_back([&, rank]() -> std::string {
      SharedMemoryOptions options = options_of(rank, 2, job_id);
      options.timeout = kSoon;
      const auto comm = connect_shared_memory(options);
      Buffer in(*comm, 2 * kPart, true), out(*comm, kPart, true);
      comm->barrier("start")->wait();
      if (rank == 1) {
        unreadable = next_page(in.data());
        mprotect(unreadable, size_t(sysconf(_SC_PAGESIZE)), PROT_NONE);
        signal(SIGSEGV, stop_until_it_is_readable);
        while (!is_stopped->load()) std::this_thread::yield();
      }
      comm->set_timeout(rank == 0 ? timeout : milliseconds(kSoon));
      const auto begin = std::chrono::steady_clock::now();
      try {
        const WorkPtr sum = comm->reduce_scatter(in.data(), out.data(), 2 * kPart, DType::kF32,
                                                 ReduceOp::kSum, "x");
        if (rank == 0) raise(SIGSTOP);
        sum->wait();
      } catch (const CommError& error) {
        if (rank == 1) {
          is_over->store(true);
          return "";
        }
        took->store(milliseconds_since(begin));
        constexpr auto kPiece = kPieceBytes / int64_t(sizeof(float));
        std::fill(out.data(), out.data() + kPart, -1.0F);
        has_heard->store(true);
        while (!is_over->load() && milliseconds_since(begin) < kSoonMs) std::this_thread::yield();
        const bool is_kept = std::all_of(out.data() + kPiece, out.data() + kPart,
                                         [](float value) { return value == -1; });
        return text_of(error) + (is_over->load() && is_kept ? "" : "; then it writes on");
      }
      return "went on";
    });
  int status = 0;
  waitpid(children[0].pid(), &status, WUNTRACED);
  is_stopped->store(true);
  waitpid(children[1].pid(), &status, WUNTRACED);
  kill(children[0].pid(), SIGCONT);
  const auto begin = std::chrono::steady_clock::now();
  while (!has_heard->load() && milliseconds_since(begin) < kSoonMs) std::this_thread::yield();
  kill(children[1].pid(), SIGCONT);
  const std::string said = children[0].join().said;
  children[1].join();
  milliseconds_to_hear = took->load();
  return said;
}

}  // namespace

TEST_CASE(
    "processes: who stops at the sum of another is named by the time-out, no second later, and "
    "writes no more than a piece when it goes on") {
  constexpr milliseconds kTimeOut{300}, kNoSecondLater{1200};
  CHECK(is_once_within(kNoSecondLater, [&] {
    double took = 0;
    CHECK(stopped_at_the_sum_of_another(kTimeOut, took) ==
          "timeout 1: rank 0: reduce_scatter #2 'x' of 524288 fp32 timed out after 0.3 s: rank 1 "
          "stopped in it (its last call: #2 reduce_scatter 'x')");
    CHECK(took >= double(kTimeOut.count()));
    return took;
  }));
}

namespace {

// What four ranks say of a sum that all leave alone for twice the time-out. The last one is stopped
// when it has called it and not begun: it comes behind another call.
std::vector<std::string> with_one_stopped_before_its_sum(milliseconds timeout) {
  constexpr int kRanks = 4, kStopped = 3;
  constexpr int64_t kPart = 1 << 18;
  const std::string job_id = fresh_job_id();
  const Shared<std::atomic<bool>> is_stopped;
  std::vector<Child> children;
  for (int rank = 0; rank < kRanks; ++rank)
    children.emplace_back([&, rank]() -> std::string {
      const auto comm = connect_shared_memory(options_of(rank, kRanks, job_id));
      Buffer in(*comm, kRanks * kPart, true), out(*comm, kPart, true);
      std::fill(in.data(), in.data() + kRanks * kPart, float(1 + rank));
      comm->barrier("start")->wait();
      if (rank != kStopped)
        while (!is_stopped->load()) std::this_thread::yield();
      comm->set_timeout(timeout);
      const WorkPtr first = comm->barrier("first");
      const WorkPtr sum = comm->reduce_scatter(in.data(), out.data(), kRanks * kPart, DType::kF32,
                                               ReduceOp::kSum, "x");
      if (rank == kStopped) raise(SIGSTOP);
      std::this_thread::sleep_for(2 * timeout);
      try {
        first->wait();
        sum->wait();
      } catch (const CommError& error) {
        return text_of(error);
      }
      const bool is_right =
          std::all_of(out.data(), out.data() + kPart, [](float value) { return value == 10; });
      comm->set_timeout(kSoon);
      comm->barrier("the stopped one goes on")->wait();
      return is_right ? "right" : "wrong";
    });
  int status = 0;
  waitpid(children[kStopped].pid(), &status, WUNTRACED);
  is_stopped->store(true);
  std::this_thread::sleep_for(3 * timeout);
  kill(children[kStopped].pid(), SIGCONT);
  std::vector<std::string> said;
  for (Child& child : children) said.push_back(child.join().said);
  return said;
}

}  // namespace

TEST_CASE(
    "processes: what a stopped rank has left of a sum is made before the time is over, by those "
    "who compute as well") {
  // Else each of them, its own share made, would name whose piece it is that nobody has made.
  constexpr int kTries = 4;  // the machine may stand still in one
  bool is_right = false;
  for (int tries = 0; tries < kTries && !is_right; ++tries) {
    const std::vector<std::string> said = with_one_stopped_before_its_sum(milliseconds(600));
    CHECK(std::count(said.begin(), said.end(), "wrong") == 0);
    is_right = std::count(said.begin(), said.end(), "right") == int(said.size());
  }
  CHECK(is_right);
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
      "barrier #2 'next' timed out after 0.6 s: rank 1 has not made this call (its last call: #1 "
      "barrier 'start')";
  for (const std::string& s : said) {
    CHECK(s.rfind("timeout 1: rank ", 0) == 0);
    CHECK(s.find(cause) != std::string::npos);
    CHECK(s.find("(not in time)") == std::string::npos);
  }
}
