#include <doctest/doctest.h>

#include <thread>

#include "parity/layouts.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/record/error_report.h"
#include "smp/runtime/training/fault_injection.h"

namespace smp {
namespace {

Plan plan_for(const ModelSpec& model, const mesh::Degrees& degrees) {
  return parity::plan_of(model, {"", degrees}, Precision::kFp32, "text.txt");
}

record::ErrorReport words_of(const std::exception& error) {
  record::ErrorReport words;
  words.rank = 2;
  words.phase = "step 3: backward";
  record::describe(error, words);
  return words;
}

}  // namespace

TEST_CASE("ranks share the memory of the host that they run on, whatever the plan puts on one") {
  Plan plan = plan_for(parity::gpt2_model(), {});
  plan.job.cluster.host_memory_bytes = int64_t{1} << 30;
  plan.job.cluster.processes_per_host = 4;
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    ledger::MemoryLedger ledger(0, 0);
    const ledger::LedgerScope scope(ledger);
    const auto share = [&](int64_t ranks_of_host) {
      return parallel::apply_parallelism(plan, world, ledger, nullptr, ranks_of_host)
          .host->limit_bytes();
    };
    CHECK(share(0) == (int64_t{1} << 30) / 4);
    CHECK(share(6) == (int64_t{1} << 30) / 6);
    CHECK(share(2) == (int64_t{1} << 30) / 2);
  });
}

TEST_CASE("a rank is in the groups of its own coordinates, and waits on one clock") {
  const Plan plan = plan_for(parity::gpt2_model(), {.pipeline = 3, .tensor = 2});
  const mesh::Mesh mesh(plan.degrees, "cluster");
  jobs::run_ranks(6, [&](comm::Communicator& world) {
    parallel::RankGroups groups(plan, world);
    const mesh::Coord coord = mesh.coord_of(world.rank());
    CHECK(groups.at(mesh::Axis::kPipeline).size() == 3);
    CHECK(groups.at(mesh::Axis::kPipeline).rank() == coord.pipeline);
    CHECK(groups.at(mesh::Axis::kTensor).rank() == coord.tensor);
    CHECK((groups.find(mesh::Axis::kTied) != nullptr) == (coord.pipeline != 1));
    CHECK(groups.find(mesh::Axis::kData) == nullptr);
    if (world.rank() == 5) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    groups.world().barrier("setup.test")->wait();
    if (world.rank() == 0) CHECK(groups.waited_s() > 0.02);
  });
}

TEST_CASE("a fault is read from its text") {
  const training::InjectedFault fault = training::parse_fault("rank=2,step=13,kind=kill");
  CHECK(fault.rank == 2);
  CHECK(fault.step == 13);
  CHECK(fault.kind == training::InjectedFault::Kind::kKill);
  for (const char* text : {"", "rank=1", "rank=1,step=2", "rank=1,step=x,kind=kill",
                           "rank=1,step=2,kind=nap", "rank 1", "rank=1,step=2kind=kill"}) {
    CHECK_THROWS_WITH_AS(training::parse_fault(text),
                         ("SMP_FAULT='" + std::string(text) +
                          "': expected rank=R,step=S,kind=exit3|exception|segv|kill|stop")
                             .c_str(),
                         ConfigError);
  }
}

TEST_CASE("a fault that would never come about is refused") {
  CHECK_NOTHROW(training::check_fault(std::nullopt, 4, 10));
  CHECK_NOTHROW(training::check_fault(training::InjectedFault{.rank = 3, .step = 10}, 4, 10));
  for (const training::InjectedFault& fault : {training::InjectedFault{.rank = 3, .step = 0},
                                               training::InjectedFault{.rank = 3, .step = 11}}) {
    CHECK_THROWS_WITH_AS(training::check_fault(fault, 4, 10),
                         ("SMP_FAULT: step " + std::to_string(fault.step) +
                          " of rank 3 does not exist: this job has steps 1 to 10 and ranks 0 to 3")
                             .c_str(),
                         ConfigError);
  }
  CHECK_THROWS_AS(training::check_fault(training::InjectedFault{.rank = 4, .step = 1}, 4, 10),
                  ConfigError);
  CHECK_THROWS_AS(training::check_fault(training::InjectedFault{.rank = -1, .step = 1}, 4, 10),
                  ConfigError);
}

TEST_CASE("a fault is for one rank and one step") {
  const training::InjectedFault fault{
      .rank = 1, .step = 3, .kind = training::InjectedFault::Kind::kException};
  CHECK_NOTHROW(training::inject_fault_if_due(std::nullopt, 1, 3));
  CHECK_NOTHROW(training::inject_fault_if_due(fault, 0, 3));
  CHECK_NOTHROW(training::inject_fault_if_due(fault, 1, 2));
  CHECK_THROWS_WITH(training::inject_fault_if_due(fault, 1, 3),
                    "injected exception on rank 1 at step 3");
}

TEST_CASE("last words name who is to blame") {
  CHECK(record::to_json(words_of(std::runtime_error("no \"luck\""))) ==
        "{\"rank\":2,\"kind\":\"own\",\"culprit\":2,\"phase\":\"step 3: backward\","
        "\"message\":\"no \\\"luck\\\"\"}\n");
  const record::ErrorReport lost =
      words_of(comm::CommError(comm::CommError::Kind::kPeerLost, 0, "rank 0 is gone"));
  CHECK(lost.kind == "peer_lost");
  CHECK(lost.culprit == 0);
  CHECK(lost.exit_code == ExitCode::kFailure);
  const record::ErrorReport late =
      words_of(comm::CommError(comm::CommError::Kind::kTimeout, 1, "rank 1 is late"));
  CHECK(late.kind == "timeout");
  CHECK(late.exit_code == ExitCode::kTimeout);
  const record::ErrorReport unknown =
      words_of(comm::CommError(comm::CommError::Kind::kMismatch, -1, "?"));
  CHECK(unknown.kind == "mismatch");
  CHECK(unknown.culprit == 2);
  const record::ErrorReport memory =
      words_of(ledger::OutOfMemory("step 3: forward, microbatch 1", "no room"));
  CHECK(memory.kind == "out_of_memory");
  CHECK(memory.culprit == 2);
  CHECK(memory.phase == "step 3: forward, microbatch 1");
  CHECK(words_of(ConfigError("x")).exit_code == ExitCode::kBadConfig);
}

}  // namespace smp
