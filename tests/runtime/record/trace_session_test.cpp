#include "record/trace_session.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "files_and_errors.h"
#include "runtime/short_runs.h"
#include "smp/comm/call_log.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/runinfo/trace_file.h"
#include "trace_check.h"

namespace smp {
namespace {

using test::options_of;
using test::ShortRuns;
using test::TraceCheck;

struct TracedCase {
  const char* name;
  parity::LayoutCase layout;
};

// Everything that actions can be: stages, ZeRO-3 with recomputing, tensor parallelism, weights put
// off, offloading.
std::vector<TracedCase> traced_cases() {
  return {
      {"one rank", {"", {}}},
      {"pipeline 2 x ZeRO-3, recompute",
       {.name = "",
        .degrees = {.pipeline = 2, .shard = 2},
        .sharding = Sharding::kParameters,
        .recompute = Recompute::kFull}},
      {"tensor 2 x data 2", {"", {.tensor = 2, .replica = 2}}},
      {"pipeline 2, zb_h1",
       {.name = "", .degrees = {.pipeline = 2}, .pipeline = PipelineKind::kZbH1}},
      {"ZeRO-2 of 4", {.name = "", .degrees = {.shard = 4}, .sharding = Sharding::kGradients}},
  };
}

// Standard output of rank 0.
class Heard {
 public:
  ~Heard() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int c = 0; (c = std::fgetc(file_)) != EOF;) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_ = std::tmpfile();
};

std::vector<std::string> schedule_of(const Plan& plan, int64_t rank) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const schedule::Schedule schedule = schedule::make_schedule(layout::schedule_parameters(plan));
  return test::scheduled_actions(
      schedule.actions.at(static_cast<size_t>(mesh.coord_of(rank).pipeline)));
}

}  // namespace

TEST_CASE("a traced run leaves one file in which each rank's actions are the schedule's") {
  const ShortRuns runs;
  for (const TracedCase& traced : traced_cases()) {
    CAPTURE(traced.name);
    const ScratchFolder folder;
    Plan plan = runs.plan(traced.layout);
    plan.job.training.trace.steps = {2, 3};
    Heard heard;
    training::TrainOptions options = options_of(folder / "run", 4);
    options.progress = heard.file();
    ShortRuns::run(plan, options);
    CHECK(heard.text().find("the timeline of steps 2 to 3 is in " + (folder / "run/trace.json") +
                            "\n") != std::string::npos);
    const std::string text = text_of(folder / "run/trace.json");
    const TraceCheck check(text);
    CHECK(check.problems() == std::vector<std::string>{});
    // Updated weights are still under way when the last step ends.
    if (traced.layout.sharding != Sharding::kGradients) CHECK(check.open() == 0);
    CHECK(static_cast<int64_t>(check.processes().size()) == plan.degrees.world());
    CHECK(check.counters() > 0);
    CHECK((check.flows() > 0) == (plan.degrees.pipeline > 1));
    CHECK(check.about().at("steps") == "2 to 3");
    const std::vector<runinfo::ReadSlice> slices = runinfo::parse_trace("trace.json", text);
    for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
      CAPTURE(rank);
      for (const int64_t step : {2, 3})
        CHECK(test::traced_actions(slices, rank, step) == schedule_of(plan, rank));
      CHECK(test::traced_actions(slices, rank, 1).empty());
      CHECK(test::traced_actions(slices, rank, 4).empty());
    }
    if (plan.degrees.tensor > 1) CHECK(check.names_on("tensor group").contains("tensor.forward"));
    if (plan.degrees.shard > 1) CHECK(check.names_on("shard group").contains("data.gradients"));
    if (plan.degrees.world() > 1) CHECK(check.names_on("compute").contains("wait"));
    CHECK_FALSE(std::filesystem::exists(folder / "run/trace"));
  }
}

namespace {

// By label, as the report counts them.
std::map<std::string, int64_t> bytes_of_steps(const record::RankMeasurements& facts) {
  std::map<std::string, int64_t> bytes;
  for (const comm::TrafficCount& count : facts.traffic) {
    if (!count.label.starts_with("setup.")) bytes[count.label] += count.wire_bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("tracing changes neither losses nor counted memory nor traffic") {
  const ShortRuns runs;
  Plan plan = runs.plan(traced_cases()[1].layout);
  const ScratchFolder folder;
  const training::RunResult without = ShortRuns::run(plan, options_of(folder / "without", 4));
  CHECK_FALSE(std::filesystem::exists(folder / "without/trace.json"));
  plan.job.training.trace.steps = {1, 4};
  const training::RunResult with = ShortRuns::run(plan, options_of(folder / "with", 4));
  CHECK(with.losses == without.losses);
  REQUIRE(with.ranks.size() == without.ranks.size());
  for (size_t rank = 0; rank < with.ranks.size(); ++rank) {
    CHECK(with.ranks[rank].peak.bytes == without.ranks[rank].peak.bytes);
    CHECK(bytes_of_steps(with.ranks[rank]) == bytes_of_steps(without.ranks[rank]));
  }
}

TEST_CASE("a run that goes on behind the traced steps says that nothing is traced") {
  const ShortRuns runs;
  Plan plan = runs.plan({"", {}});
  plan.job.training.checkpoint.every_steps = 4;
  const ScratchFolder folder;
  ShortRuns::run(plan, options_of(folder / "run", 4));
  plan.job.training.trace.steps = {1, 2};  // may change
  Heard heard;
  training::TrainOptions options = test::resumed(folder / "run", 6);
  options.progress = heard.file();
  ShortRuns::run(plan, options);
  CHECK(heard.text().find("note: no step is traced: the last step of training.trace.steps is 2, "
                          "and this run starts with step 5\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "run/trace.json"));
  plan.job.training.trace.steps = {3, 7};  // from where this start begins
  options = test::resumed(folder / "run", 8);
  ShortRuns::run(plan, options);
  CHECK(TraceCheck(text_of(folder / "run/trace.json")).about().at("steps") == "7 to 7");
}

TEST_CASE("a run that ends before the last traced step leaves what was traced") {
  const ShortRuns runs;
  Plan plan = runs.plan({"", {.pipeline = 2}});
  plan.job.training.trace.steps = {2, 100};
  const ScratchFolder folder;
  ShortRuns::run(plan, options_of(folder / "run", 4));
  CHECK(TraceCheck(text_of(folder / "run/trace.json")).about().at("steps") == "2 to 4");
}

TEST_CASE("of a run that fails in a traced step each rank that is left writes its own part") {
  const ShortRuns runs;
  Plan plan = runs.plan(
      {.name = "", .degrees = {.pipeline = 2, .shard = 2}, .sharding = Sharding::kParameters});
  plan.job.training.trace.steps = {2, 4};
  const ScratchFolder folder;
  Heard heard;
  training::TrainOptions options = options_of(folder / "run", 5);
  options.progress = heard.file();
  options.fault = training::InjectedFault{
      .rank = 3, .step = 3, .kind = training::InjectedFault::Kind::kException};
  CHECK(ShortRuns::error(plan, options).find("injected exception on rank 3 at step 3") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "run/trace.json"));
  CHECK(heard.text().find("timelines of the ranks until the failure are in " +
                          (folder / "run/trace") + "\n") != std::string::npos);
  int64_t open = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = text_of(folder / fmt::format("run/trace/rank-{}.json", rank));
    const TraceCheck check(text);
    CHECK(check.problems() == std::vector<std::string>{});
    CHECK(check.processes().count(rank) == 1);
    CHECK(check.about().at("ended") == "the run failed");
    open += check.open();
    CHECK(test::traced_actions(runinfo::parse_trace("t", text), rank, 2) ==
          schedule_of(plan, rank));
  }
  CHECK(open > 0);  // what rank 3's peers waited for
}

TEST_CASE("a disk that is full costs the timeline, not the run, and is told") {
  class FullDisk final : public files::FileCalls {
   public:
    ssize_t write_at(int, const void*, size_t, int64_t) override {
      errno = ENOSPC;
      return -1;
    }
  };
  const ShortRuns runs;
  Plan plan = runs.plan({"", {.replica = 2}});
  plan.job.training.trace.steps = {1, 1};
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "run");
  Heard heard;
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    FullDisk disk;
    record::TraceSession tracing(plan, world, folder / "run", heard.file(), nullptr, disk);
    tracing.start(1, {{.kind = schedule::ActionKind::kStep}});
    tracing.begin_step(1);
    tracing.end_step(1);
    world.barrier("after")->wait();
  });
  CHECK(heard.text() ==
        "note: the timeline could not be written: cannot write " + (folder / "run/trace.json") +
            ": No space left on device; free some space there or give another folder with "
            "--run-dir\n");
  CHECK(std::filesystem::is_empty(folder / "run"));
}

TEST_CASE("clocks of hosts: the offset is known to half of the quickest round trip") {
  jobs::run_ranks(5, [](comm::Communicator& world) {
    // Ranks 0 and 3, 1 and 2, 4 share a host; all of them have one clock in truth.
    const char* const hosts[] = {"a", "b", "b", "a", "c"};
    const std::vector<record::HostClock> clocks = record::align_clocks(world, hosts[world.rank()]);
    REQUIRE(clocks.size() == 5);
    for (const int own : {0, 3}) {
      CHECK(clocks[static_cast<size_t>(own)].offset_ns == 0);
      CHECK(clocks[static_cast<size_t>(own)].uncertainty_ns == 0);
    }
    for (const int other : {1, 4}) {
      const record::HostClock& clock = clocks[static_cast<size_t>(other)];
      CHECK(clock.uncertainty_ns > 0);
      CHECK(std::abs(clock.offset_ns) <= clock.uncertainty_ns);
    }
    CHECK(clocks[2].offset_ns == clocks[1].offset_ns);
    CHECK(clocks[2].uncertainty_ns == clocks[1].uncertainty_ns);
  });
}

TEST_CASE("a call ends when the communicator saw it done, not when the rank looked") {
  jobs::run_ranks(2, [](comm::Communicator& world) {
    runinfo::StepTracer tracer;
    tracer.reserve(10);
    tracer.begin_step(1);
    float value = 1;
    const size_t place = tracer.begin_call(mesh::CollectiveOp::kAllReduce, mesh::Axis::kWorld,
                                           "data.gradients", 4, 2, -1);
    const comm::WorkPtr work =
        world.all_reduce(&value, &value, 1, DType::kF32, comm::ReduceOp::kSum, "data.gradients");
    work->wait();
    const int64_t done_ns = runinfo::steady_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    tracer.end(place);
    tracer.end_step();
    const int64_t begin = tracer.slices()[place].begin_ns;
    CHECK(tracer.slices()[place].end_ns >= done_ns + 20'000'000);
    record::set_call_ends(tracer.slices(), *world.call_log());
    CHECK(tracer.slices()[place].end_ns >= begin);
    CHECK(tracer.slices()[place].end_ns < done_ns + 10'000'000);
    // Another call is not taken for it.
    tracer.slices()[place].label[0] = 'D';
    tracer.slices()[place].end_ns = runinfo::TraceSlice::kOpen;
    record::set_call_ends(tracer.slices(), *world.call_log());
    CHECK(tracer.slices()[place].end_ns == runinfo::TraceSlice::kOpen);
  });
}

}  // namespace smp
