#include <doctest/doctest.h>

#include <thread>

#include "parity/layouts.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/errors.h"
#include "smp/runtime/fault.h"
#include "smp/runtime/groups.h"
#include "smp/runtime/last_words.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/parallelize.h"

namespace smp {
namespace {

Plan plan_for(const ModelSpec& model, const Degrees& degrees) {
  return parity::plan_of(model, {"", degrees}, Precision::kFp32, "text.txt");
}

LastWords words_of(const std::exception& error) {
  LastWords words;
  words.rank = 2;
  words.phase = "step 3: backward";
  describe(error, words);
  return words;
}

}  // namespace

TEST_CASE("ranks share the memory of the host that they run on, whatever the plan puts on one") {
  Plan plan = plan_for(parity::gpt2_model(), {});
  plan.job.cluster.host_memory_bytes = int64_t{1} << 30;
  plan.job.cluster.processes_per_host = 4;
  run_ranks(1, [&](Communicator& world) {
    MemoryLedger ledger(0, 0);
    const LedgerScope scope(ledger);
    const auto share = [&](int64_t ranks_of_host) {
      return apply_parallelism(plan, world, ledger, nullptr, ranks_of_host).host->limit_bytes();
    };
    CHECK(share(0) == (int64_t{1} << 30) / 4);
    CHECK(share(6) == (int64_t{1} << 30) / 6);
    CHECK(share(2) == (int64_t{1} << 30) / 2);
  });
}

TEST_CASE("a rank is in the groups of its own coordinates, and waits on one clock") {
  const Plan plan = plan_for(parity::gpt2_model(), {.pipeline = 3, .tensor = 2});
  const Mesh mesh(plan.degrees, "cluster");
  run_ranks(6, [&](Communicator& world) {
    RankGroups groups(plan, world);
    const Coord coord = mesh.coord_of(world.rank());
    CHECK(groups.at(Axis::kPipeline).size() == 3);
    CHECK(groups.at(Axis::kPipeline).rank() == coord.pipeline);
    CHECK(groups.at(Axis::kTensor).rank() == coord.tensor);
    CHECK((groups.find(Axis::kTied) != nullptr) == (coord.pipeline != 1));
    CHECK(groups.find(Axis::kData) == nullptr);
    if (world.rank() == 5) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    groups.world().barrier("setup.test")->wait();
    if (world.rank() == 0) CHECK(groups.waited_s() > 0.02);
  });
}

TEST_CASE("a fault is read from its text") {
  const Fault fault = parse_fault("rank=2,step=13,kind=kill");
  CHECK(fault.rank == 2);
  CHECK(fault.step == 13);
  CHECK(fault.kind == Fault::Kind::kKill);
  for (const char* text : {"", "rank=1", "rank=1,step=2", "rank=1,step=x,kind=kill",
                           "rank=1,step=2,kind=nap", "rank 1", "rank=1,step=2kind=kill"}) {
    CHECK_THROWS_WITH_AS(parse_fault(text),
                         ("SMP_FAULT: '" + std::string(text) +
                          "' is not rank=R,step=S,kind=exit3|exception|segv|kill|stop")
                             .c_str(),
                         ConfigError);
  }
}

TEST_CASE("a fault that would never come about is refused") {
  CHECK_NOTHROW(check_fault(std::nullopt, 4, 10));
  CHECK_NOTHROW(check_fault(Fault{.rank = 3, .step = 10}, 4, 10));
  for (const Fault& fault : {Fault{.rank = 3, .step = 0}, Fault{.rank = 3, .step = 11}}) {
    CHECK_THROWS_WITH_AS(check_fault(fault, 4, 10),
                         ("SMP_FAULT: there is no step " + std::to_string(fault.step) +
                          " of rank 3: this job has the steps 1 to 10 and the ranks 0 to 3")
                             .c_str(),
                         ConfigError);
  }
  CHECK_THROWS_AS(check_fault(Fault{.rank = 4, .step = 1}, 4, 10), ConfigError);
  CHECK_THROWS_AS(check_fault(Fault{.rank = -1, .step = 1}, 4, 10), ConfigError);
}

TEST_CASE("a fault is for one rank and one step") {
  const Fault fault{.rank = 1, .step = 3, .kind = Fault::Kind::kException};
  CHECK_NOTHROW(maybe_fail(std::nullopt, 1, 3));
  CHECK_NOTHROW(maybe_fail(fault, 0, 3));
  CHECK_NOTHROW(maybe_fail(fault, 1, 2));
  CHECK_THROWS_WITH(maybe_fail(fault, 1, 3), "injected exception on rank 1 at step 3");
}

TEST_CASE("last words name who is to blame") {
  CHECK(to_json(words_of(std::runtime_error("no \"luck\""))) ==
        "{\"rank\":2,\"kind\":\"own\",\"culprit\":2,\"phase\":\"step 3: backward\","
        "\"message\":\"no \\\"luck\\\"\"}\n");
  const LastWords lost = words_of(CommError(CommError::Kind::kPeerLost, 0, "rank 0 is gone"));
  CHECK(lost.kind == "peer_lost");
  CHECK(lost.culprit == 0);
  CHECK(lost.exit_code == ExitCode::kFailure);
  const LastWords late = words_of(CommError(CommError::Kind::kTimeout, 1, "rank 1 is late"));
  CHECK(late.kind == "timeout");
  CHECK(late.exit_code == ExitCode::kTimeout);
  const LastWords unknown = words_of(CommError(CommError::Kind::kMismatch, -1, "?"));
  CHECK(unknown.kind == "mismatch");
  CHECK(unknown.culprit == 2);
  const LastWords memory = words_of(OutOfMemory("step 3: forward, microbatch 1", "no room"));
  CHECK(memory.kind == "out_of_memory");
  CHECK(memory.culprit == 2);
  CHECK(memory.phase == "step 3: forward, microbatch 1");
  CHECK(words_of(ConfigError("x")).exit_code == ExitCode::kBadConfig);
}

}  // namespace smp
