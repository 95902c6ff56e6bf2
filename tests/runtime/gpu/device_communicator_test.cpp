#include "gpu/device_communicator.h"

#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/host_collectives.h"
#include "runtime/host_gpu.h"
#include "smp/comm/device/staged_communicator.h"
#include "smp/comm/jobs/thread_group.h"

// Calls between GPUs, which here are host threads (host_collectives.h), and how they fail.
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::gpu;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::test;
using std::chrono::milliseconds;
constexpr std::chrono::seconds kAllTime{60};  // for what takes a moment, however busy the machine
using std::chrono::steady_clock;

namespace {

using RankProgram = std::function<void(DeviceCommunicator&)>;

void on_gpus(int size, HostGpuNetwork& network, const RankProgram& program,
             milliseconds timeout = std::chrono::seconds(60)) {
  CountedCopies counts;
  run_ranks(size, [&](Communicator& world) {
    LateMemory memory(counts);
    HostCollectivesLibrary library(network);
    StagedCommunicator staged(world, memory);
    DeviceCommunicator gpus(staged, world, memory, library, timeout);
    gpus.set_timeout(timeout);
    program(gpus);
  });
}

std::vector<int64_t> values_of(int rank, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 100 * rank);
  return values;
}

int64_t sum(Communicator& comm, std::string_view label = "x") {
  std::vector<int64_t> value = {comm.rank() + 1};
  comm.all_reduce(value.data(), value.data(), 1, DType::kI64, ReduceOp::kSum, label)->wait();
  return value.front();
}

// The text with which every rank's call ends, and its kind.
void fails_with(const std::function<void()>& call, CommError::Kind kind, const std::string& text) {
  try {
    call();
  } catch (const CommError& error) {
    const std::string said = error.what();
    CAPTURE(said);
    CHECK(error.kind == kind);
    CHECK(said.find(text) != std::string::npos);
    return;
  }
  FAIL("did not fail: " << text);
}

// Once the watch has seen what is wrong.
void fails_soon(Communicator& comm, CommError::Kind kind, const std::string& text) {
  fails_with(
      [&] {
        for (const auto begin = steady_clock::now(); steady_clock::now() - begin < kAllTime;)
          (void)sum(comm, "later");
      },
      kind, text);
}

// A rank whose guards are slower than its GPU: they call only when it leaves.
class LateBarriers final : public WrappedCommunicator {
 public:
  LateBarriers(std::unique_ptr<Communicator> group, std::atomic<int>& failed)
      : WrappedCommunicator(std::move(group)), failed_(failed) {}
  ~LateBarriers() override { call(); }

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<LateBarriers>(inner().split(members), failed_);
  }

 private:
  struct LateWork final : Work {
    explicit LateWork(LateBarriers& owner) : barriers(owner) {}
    bool done() override { return false; }
    void wait() override { barriers.call(); }
    LateBarriers& barriers;
  };

  WorkPtr pass(const Call& call) override {
    if (call.op != CollectiveOp::kBarrier || call.label == "GPUs' group")
      return WrappedCommunicator::pass(call);
    late_.emplace_back(call.label);
    return std::make_shared<LateWork>(*this);
  }

  void call() {
    for (const std::string& label : std::exchange(late_, {})) {
      try {
        inner().barrier(label)->wait();
      } catch (const CommError&) {
        ++failed_;
      }
    }
  }

  std::vector<std::string> late_;
  std::atomic<int>& failed_;
};

// A first call of two ranks that goes well, behind which the first group's GPUs behave otherwise.
template <class Change>
void after_a_call(HostGpuNetwork& network, DeviceCommunicator& gpus, const Change& change) {
  CHECK(sum(gpus) == 3);
  gpus.barrier("b")->wait();
  {
    const auto board = network.board(DeviceGroupId{'1'});
    std::lock_guard guard(board->mutex);
    change(*board);
  }
  gpus.barrier("c")->wait();
}

}  // namespace

TEST_CASE("calls between GPUs: every operation, in groups too, and the rest by the host") {
  for (const int size : {1, 2, 3, 5}) {
    HostGpuNetwork network;
    on_gpus(size, network, [&](DeviceCommunicator& gpus) {
      const int rank = gpus.rank();
      const std::vector<int64_t> own = values_of(rank, 6);
      std::vector<int64_t> out(6);
      gpus.all_reduce(own.data(), out.data(), 6, DType::kI64, ReduceOp::kSum, "a")->wait();
      for (int64_t i = 0; i < 6; ++i)
        CHECK(out[size_t(i)] == size * i + 100 * size * (size - 1) / 2);
      std::vector<int64_t> all(static_cast<size_t>(6 * size));
      const WorkPtr gathered = gpus.all_gather(own.data(), all.data(), 6, DType::kI64, "b");
      while (!gathered->done()) std::this_thread::yield();
      for (int r = 0; r < size; ++r) CHECK(all[size_t(6 * r + 2)] == 100 * r + 2);
      std::vector<int64_t> part(6);
      gpus.reduce_scatter(all.data(), part.data(), 6 * size, DType::kI64, ReduceOp::kMax, "c")
          ->wait();
      CHECK(part == values_of(rank, 6));
      out = own;
      gpus.broadcast(out.data(), 6, DType::kI64, size - 1, "d")->wait();
      CHECK(out == values_of(size - 1, 6));
      if (size > 1) {
        const WorkPtr sent = gpus.send(own.data(), 6, DType::kI64, (rank + 1) % size, "e");
        gpus.recv(out.data(), 6, DType::kI64, (rank + size - 1) % size, "e")->wait();
        sent->wait();
        CHECK(out == values_of((rank + size - 1) % size, 6));
      }
      std::vector<int> alike;
      for (int r = rank % 2; r < size; r += 2) alike.push_back(r);
      const auto half = gpus.split(alike);
      const int64_t members = half->size();
      CHECK(sum(*half) == members * (members + 1) / 2);
      CHECK(sum(gpus) == size * (size + 1) / 2);
      int64_t calls = 0, wire = 0;
      for (const TrafficCount& count : gpus.traffic())
        if (count.label == "a") calls += count.calls, wire += count.wire_bytes;
      CHECK(calls == 1);
      CHECK(wire == wire_bytes(CollectiveOp::kAllReduce, size, rank, 6, 8));
    });
  }
}

TEST_CASE("calls between GPUs: a rank may leave as soon as its last result is there") {
  HostGpuNetwork network;
  std::atomic<int> failed{0};
  run_ranks(2, [&](Communicator& world) {
    CountedCopies counts;
    LateMemory memory(counts);
    HostCollectivesLibrary library(network);
    const std::unique_ptr<Communicator> guards =
        world.rank() == 1 ? std::make_unique<LateBarriers>(world.split({0, 1}), failed)
                          : world.split({0, 1});
    DeviceCommunicator gpus(world, *guards, memory, library, std::chrono::seconds(60));
    std::vector<int64_t> values(3, gpus.rank() + 1);
    std::vector<WorkPtr> works;
    for (int64_t& value : values)
      works.push_back(gpus.all_reduce(&value, &value, 1, DType::kI64, ReduceOp::kSum, "x"));
    while (!works.back()->done()) std::this_thread::yield();
    CHECK(values.back() == 3);
  });
  CHECK(failed.load() == 0);
}

TEST_CASE("calls between GPUs: those that do not match end on both ranks, which hear of both") {
  HostGpuNetwork network;
  on_gpus(2, network, [](DeviceCommunicator& gpus) {
    CHECK(sum(gpus) == 3);
    std::vector<int64_t> buffer(8);
    const auto call = [&] {
      const WorkPtr work = gpus.rank() == 0 ? gpus.all_reduce(buffer.data(), buffer.data(), 4,
                                                              DType::kI64, ReduceOp::kSum, "g")
                                            : gpus.broadcast(buffer.data(), 8, DType::kI64, 0, "g");
      while (true) (void)sum(gpus, "later");
    };
    fails_with(call, CommError::Kind::kMismatch, "g: broadcast 8 int64 root 0");
  });
}

TEST_CASE("calls between GPUs: a rank that does not call, or leaves, is named") {
  HostGpuNetwork network;
  std::atomic<bool> told{false};
  on_gpus(
      2, network,
      [&](DeviceCommunicator& gpus) {
        CHECK(sum(gpus) == 3);
        if (gpus.rank() == 1) {
          while (!told.load()) std::this_thread::sleep_for(milliseconds(2));
          return;
        }
        const auto begin = steady_clock::now();
        std::vector<int64_t> value(1);
        const WorkPtr work =
            gpus.all_reduce(value.data(), value.data(), 1, DType::kI64, ReduceOp::kSum, "alone");
        while (true) {  // the thread itself may be waiting for its GPU: the watch ends that
          try {
            work->wait();
            if (steady_clock::now() - begin > kAllTime) break;
          } catch (const CommError& error) {
            CHECK(error.kind == CommError::Kind::kTimeout);
            CHECK(std::string(error.what()).find("rank 1 has not made this call") !=
                  std::string::npos);
            break;
          }
        }
        CHECK(steady_clock::now() - begin < kAllTime);
        told.store(true);
      },
      milliseconds(1500));
}

TEST_CASE("calls between GPUs: what the library says went wrong ends the group on all ranks") {
  HostGpuNetwork network;
  on_gpus(2, network, [&](DeviceCommunicator& gpus) {
    after_a_call(network, gpus, [](auto& board) {
      board.last_to_end = 1;
      board.error = "unhandled system error (a link is down)";
    });
    fails_soon(gpus, CommError::Kind::kAborted, "unhandled system error (a link is down)");
  });
}

TEST_CASE(
    "calls between GPUs: one that all have made and that does not end is told when its time is "
    "over") {
  HostGpuNetwork network;
  on_gpus(
      2, network,
      [&](DeviceCommunicator& gpus) {
        after_a_call(network, gpus, [](auto& board) { board.last_to_end = 1; });
        std::vector<int64_t> value(1);
        const WorkPtr work =
            gpus.all_reduce(value.data(), value.data(), 1, DType::kI64, ReduceOp::kSum, "stuck");
        work->wait();  // ends when the watch has aborted it
        fails_soon(gpus, CommError::Kind::kTimeout,
                   "all_reduce 'stuck' of 1 int64 on GPUs timed out after 1.5 s, although all "
                   "ranks called it");
      },
      milliseconds(1500));
}

// Ranks may connect in a group's first call only, so that the library waits for a peer itself.
TEST_CASE(
    "calls between GPUs: one that the library does not take up ends when a peer leaves, and when "
    "its time is over") {
  for (const bool all_call : {false, true}) {
    CAPTURE(all_call);
    HostGpuNetwork network;
    on_gpus(
        2, network,
        [&](DeviceCommunicator& gpus) {
          after_a_call(network, gpus, [](auto& board) { board.last_to_start = 1; });
          if (!all_call && gpus.rank() == 1) return;
          const auto begin = steady_clock::now();
          fails_with([&] { (void)sum(gpus, "unconnected"); },
                     all_call ? CommError::Kind::kTimeout : CommError::Kind::kPeerLost,
                     all_call ? "all_reduce 'unconnected' of 1 int64 on GPUs timed out after 1.5 s"
                              : "rank 1");
          CHECK(steady_clock::now() - begin < kAllTime);
        },
        milliseconds(1500));
  }
}

TEST_CASE("calls between GPUs: a group whose GPUs do not come together ends, and says so") {
  HostGpuNetwork network;
  on_gpus(
      2, network,
      [&](DeviceCommunicator& gpus) {
        network.board(DeviceGroupId{'1'})->joined = -9;
        gpus.barrier("a")->wait();
        fails_with([&] { (void)sum(gpus); }, CommError::Kind::kTimeout,
                   "connecting the GPUs of 2 ranks timed out after 1.5 s");
        fails_with([&] { (void)sum(gpus); }, CommError::Kind::kTimeout,
                   "connecting the GPUs of 2 ranks");
      },
      milliseconds(1500));
}

TEST_CASE("calls between GPUs: abort by another thread, whatever the rank is at") {
  for (const bool has_group : {false, true}) {
    HostGpuNetwork network;
    on_gpus(2, network, [&](DeviceCommunicator& gpus) {
      if (has_group) CHECK(sum(gpus) == 3);
      std::thread other([&] { gpus.abort("because"); });
      fails_soon(gpus, CommError::Kind::kAborted, "aborted: because");
      other.join();
    });
  }
}

TEST_CASE("calls between GPUs: abort ends them here and there") {
  HostGpuNetwork network;
  on_gpus(2, network, [](DeviceCommunicator& gpus) {
    CHECK(sum(gpus) == 3);
    if (gpus.rank() == 1) {
      gpus.abort("because");
      fails_with([&] { (void)sum(gpus); }, CommError::Kind::kAborted, "rank 1 aborted: because");
      return;
    }
    fails_soon(gpus, CommError::Kind::kAborted, "rank 1 aborted: because");
  });
}
