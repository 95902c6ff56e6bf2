#include "smp/comm/call_log.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "comm/layouts.h"
#include "progress/call.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;
using State = LoggedCall::State;

namespace {

LoggedCall of_number(uint64_t number) {
  LoggedCall call;
  call.number = number;
  call.count = int64_t(number);
  return call;
}

std::vector<LoggedCall> labelled(const Communicator& comm, const std::string& label) {
  std::vector<LoggedCall> calls = comm.call_log()->calls();
  std::erase_if(calls, [&](const LoggedCall& call) { return call.label != label; });
  return calls;
}

}  // namespace

TEST_CASE("the call log says of each call what it is, of which ranks, and how far it has come") {
  for (const bool on_hosts : {false, true}) {
    const auto program = [&](Communicator& world) {
      const int rank = world.rank();
      const auto pair = world.split({rank % 2, rank % 2 + 2});
      std::vector<double> x(3000);
      pair->all_reduce(x.data(), x.data(), 3000, DType::kF64, ReduceOp::kSum, "twice")->wait();
      pair->broadcast(x.data(), 5, DType::kF32, 1, "once")->wait();
      const auto sums = labelled(world, "twice"), casts = labelled(*pair, "once");
      REQUIRE(sums.size() == 1);
      CHECK(sums[0].number == 1);
      CHECK(sums[0].op == CollectiveOp::kAllReduce);
      CHECK(sums[0].dtype == DType::kF64);
      CHECK(sums[0].count == 3000);
      CHECK(sums[0].peer == -1);
      CHECK(sums[0].group_size == 2);
      CHECK(sums[0].group_first == rank % 2);
      CHECK(sums[0].group_stride == 2);
      CHECK(sums[0].state == State::kDone);
      CHECK(sums[0].enqueued >= sums[0].started);
      CHECK(sums[0].started >= sums[0].ended);
      REQUIRE(casts.size() == 1);
      CHECK(casts[0].number == 2);
      CHECK(casts[0].peer == rank % 2 + 2);
      if (rank == 0) {  // nobody else has called it
        const WorkPtr waiting = world.barrier("waiting");
        const WorkPtr behind = world.barrier("behind");
        while (labelled(world, "waiting").at(0).state == State::kEnqueued) waiting->done();
        CHECK(labelled(world, "waiting").at(0).state == State::kStarted);
        CHECK(labelled(world, "behind").at(0).state == State::kEnqueued);
        CHECK(labelled(world, "behind").at(0).started.count() == 0);
        world.send(x.data(), 1, DType::kU8, 1, "go")->wait();
        world.send(x.data(), 1, DType::kU8, 2, "go")->wait();
        world.send(x.data(), 1, DType::kU8, 3, "go")->wait();
        waiting->wait();
        behind->wait();
      } else {
        world.recv(x.data(), 1, DType::kU8, 0, "go")->wait();
        world.barrier("waiting")->wait();
        world.barrier("behind")->wait();
      }
    };
    if (on_hosts) {
      run_hosts(2, 2, program);
    } else {
      run_ranks(4, program);
    }
  }
}

TEST_CASE("the call log shows a call that failed, and may be read when the group has ended") {
  std::shared_ptr<const CallLog> log;
  CHECK_THROWS_AS(run_ranks(2,
                            [&](Communicator& comm) {
                              if (comm.rank() == 1) throw std::runtime_error("enough");
                              log = comm.call_log();
                              comm.barrier("b")->wait();
                            }),
                  std::runtime_error);
  REQUIRE(log != nullptr);
  REQUIRE(log->calls().size() == 1);
  CHECK(log->calls()[0].state == State::kFailed);
  const std::string text = log->text();
  CHECK(text.starts_with("the last 1 calls of rank 0, oldest first; times are ages\n"));
  CHECK(text.find("0-1        1 barrier") != std::string::npos);
  CHECK(text.find(" failed ") != std::string::npos);
}

TEST_CASE("the call log keeps the last calls, and a reader never sees half of one") {
  CallLog log(0);
  std::atomic<bool> ended{false};
  int64_t seen = 0, torn = 0;
  std::thread reader([&] {
    while (!ended.load() || seen == 0) {
      for (const LoggedCall& call : log.calls()) {
        ++seen;
        torn += call.count != int64_t(call.number) || call.label != std::to_string(call.number);
      }
    }
  });
  constexpr uint64_t kMade = 50000;
  for (uint64_t number = 1; number <= kMade; ++number) {
    const uint64_t entry = log.enqueue(of_number(number), std::to_string(number));
    log.start(entry);
    log.end(entry, false);
  }
  ended.store(true);
  reader.join();
  CHECK(torn == 0);
  const auto calls = log.calls();
  REQUIRE(calls.size() == CallLog::kCalls);
  CHECK(calls.front().number == kMade - CallLog::kCalls + 1);
  CHECK(calls.back().number == kMade);
  log.end(1, true);  // of a call that is forgotten: nothing
  for (const LoggedCall& call : log.calls()) CHECK(call.state == State::kDone);
  CallLog labels(0);
  labels.enqueue(of_number(1), std::string(100, 'x'));
  CHECK(labels.calls()[0].label == std::string(39, 'x'));
  for (uint64_t number = 2; number <= CallLog::kCalls; ++number)
    labels.enqueue(of_number(number), "between");
  for (const char* label : {"shorter", "", "the end"}) {  // the first in the place of the long one
    labels.enqueue(of_number(1), label);
    CHECK(labels.calls().back().label == label);
  }
}

TEST_CASE("a rank shows its last call with labels of every length, as far as there is room") {
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  std::string label;
  segment::LastCall shown{};
  CHECK(progress::load(shown).empty());
  for (size_t length = 0; length < 130; ++length, label += letters[length % letters.size()]) {
    const std::string kept = label.substr(0, sizeof(shown.text) - 1);
    progress::Call call;
    call.op = CollectiveOp::kAllReduce;
    call.number = 90 + length;
    call.label = label;
    progress::store(shown, call);
    CHECK(progress::load(shown) == fmt::format("#{} all_reduce '{}'", call.number, kept));
    progress::store(shown, label);
    CHECK(progress::load(shown) == kept);
  }
}
