#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include "files_and_errors.h"
#include "record/cache_flushes.h"
#include "runtime/host_gpu.h"
#include "runtime/short_runs.h"
#include "scratch_folder.h"
#include "smp/plan/runinfo/trace_file.h"
#include "tolerances.h"
#include "trace_check.h"

// The engine with GPUs of host threads: what it saves, goes on from, and says of their allocator.
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::gpu;
using namespace smp::record;
using namespace smp::runinfo;
using namespace smp::training;
using namespace smp::test;

namespace {

Plan plan_on(const ShortRuns& runs, const parity::LayoutCase& layout, DeviceKind device) {
  Plan plan = runs.plan(layout);
  plan.job.training.checkpoint.every_steps = 2;
  plan.job.cluster.device = device;
  return plan;
}

}  // namespace

TEST_CASE("a run on GPUs saves checkpoints, and goes on from them, on GPUs and on CPUs") {
  const ShortRuns runs;
  for (const parity::LayoutCase& layout :
       {parity::LayoutCase{"", {.pipeline = 2}},
        parity::LayoutCase{"", {.shard = 2}, PipelineKind::kInterleaved, Sharding::kParameters}}) {
    const Plan on_cpu = plan_on(runs, layout, DeviceKind::kCpu);
    const RunResult whole = ShortRuns::run(on_cpu, options_of("", 5));
    const Plan on_gpus = plan_on(runs, layout, DeviceKind::kCuda);
    HostGpus gpus;
    for (const Plan* goes_on : {&on_gpus, &on_cpu}) {
      const ScratchFolder folder;
      TrainOptions options = options_of(folder.path(), 2);
      options.open_gpu = gpus.open();
      ShortRuns::run(on_gpus, options);
      options = resumed(folder.path(), 5);
      options.open_gpu = gpus.open();
      const RunResult rest = ShortRuns::run(*goes_on, options);
      REQUIRE(rest.first_step == 2);
      for (size_t i = 0; i < rest.losses.size(); ++i) {
        CHECK(std::abs(rest.losses[i] / whole.losses[i + 2] - 1) <= tolerance::kParityF64.loss);
      }
    }
  }
}

TEST_CASE(
    "a traced run on GPUs shows what they did for each action, in the order of the schedule") {
  const ShortRuns runs;
  Plan plan = plan_on(runs, {"", {.pipeline = 2}}, DeviceKind::kCuda);
  plan.job.training.trace.steps = {2, 3};
  HostGpus gpus;
  const ScratchFolder folder;
  TrainOptions options = options_of(folder / "run", 4);
  options.open_gpu = gpus.open();
  ShortRuns::run(plan, options);
  const std::string text = text_of(folder / "run/trace.json");
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  std::vector<ReadSlice> slices = parse_trace("trace.json", text);
  for (ReadSlice& slice : slices) {
    if (slice.thread != kGpuThread) continue;
    CHECK(slice.begin_ns >= 0);
    CHECK(slice.end_ns >= slice.begin_ns);
  }
  for (const int64_t rank : {0, 1}) {
    for (const int64_t step : {2, 3}) {
      std::vector<ReadSlice> on_gpu;
      for (ReadSlice slice : slices) {
        if (slice.thread != kGpuThread) continue;
        slice.thread = kComputeThread;
        on_gpu.push_back(slice);
      }
      const std::vector<std::string> launched = traced_actions(slices, rank, step);
      CHECK(!launched.empty());
      CHECK(traced_actions(on_gpu, rank, step) == launched);
    }
  }
}

TEST_CASE("a run on GPUs whose collectives do not end is over after the communicator's time-out") {
  const ShortRuns runs;
  Plan plan = plan_on(runs, {"", {.replica = 2}}, DeviceKind::kCuda);
  plan.job.parallel.data_collectives = CollectivesKind::kNccl;
  HostGpus gpus;
  gpus.network().board(DeviceGroupId{'1'})->last_to_end = 0;
  TrainOptions options = options_of("", 1);
  options.open_gpu = gpus.open();
  options.comm_timeout = std::chrono::milliseconds(300);
  std::string said;
  try {
    ShortRuns::run(plan, options);
  } catch (const CommError& error) {
    said = error.what();
  }
  CAPTURE(said);
  CHECK(said.find("on GPUs timed out after 0.3 s, although all ranks called it") !=
        std::string::npos);
}

TEST_CASE("SMP_GDRCOPY=on is refused where the plan has no GPU") {
  const ShortRuns runs;
  TrainOptions options = options_of("", 1);
  options.gdr_use = GdrUse::kOn;
  CHECK_THROWS_WITH_AS(
      ShortRuns::run(plan_on(runs, {"", {}}, DeviceKind::kCpu), options),
      "SMP_GDRCOPY=on needs cluster.device: cuda; the plan has cluster.device: cpu", ConfigError);
}

TEST_CASE("a GPU's cache flushes are counted by step, and the first ones told") {
  const ShortRuns runs;
  HostGpus gpus;
  std::FILE* const out = std::tmpfile();
  REQUIRE(out != nullptr);
  TrainOptions options = options_of("", 3);
  options.open_gpu = gpus.open();
  options.progress = out;
  options.gdr_use = GdrUse::kOff;
  std::vector<std::string> lines;
  options.on_step = [&](const StepMetrics& metrics) {
    lines.push_back(to_json(metrics));
    gpus.counts().cache_flushes += 2;
  };
  ShortRuns::run(plan_on(runs, {"", {}}, DeviceKind::kCuda), options);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].ends_with(R"("cache_flushes":0})"));
  CHECK(lines[1].ends_with(R"("cache_flushes":2})"));
  CHECK(lines[2].ends_with(R"("cache_flushes":2})"));
  std::rewind(out);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), out));
  std::fclose(out);
  CHECK(said.starts_with("rank 0 computes on cpu, host threads; no GDRCopy: SMP_GDRCOPY=off\n"));
  const size_t first = said.find("warning: rank 0, step 2: the GPU ran out of memory 2 times");
  CHECK(first != std::string::npos);
  CHECK(said.find("warning:", first + 1) == std::string::npos);
}

TEST_CASE("the warning of cache flushes names the next shard degree and what it would save") {
  const ShortRuns runs;
  parity::LayoutCase wide{"", {.shard = 2, .replica = 6}};
  wide.microbatches = 1;
  Plan plan = runs.plan(wide);
  int64_t state = 0;
  for (const MemoryTerm& term : plan.predictions.ranks.front().terms) {
    if (term.category == MemoryCategory::kOptimizer) state += term.bytes;
  }
  REQUIRE(state > 0);
  CHECK(cache_flush_warning(plan, 0, 7, 1) ==
        fmt::format("warning: rank 0, step 7: the GPU ran out of memory 1 time, so the allocator "
                    "freed its cache and delayed the step; parallel.sharded_data_parallel_degree: "
                    "3 instead of 2 would free about {} bytes of this rank\n",
                    state - state * 2 / 3));
  plan = runs.plan({"", {.shard = 4}});
  CHECK(cache_flush_warning(plan, 1, 9, 3) ==
        "warning: rank 1, step 9: the GPU ran out of memory 3 times, so the allocator freed its "
        "cache and delayed the step; the state is sharded over all 4 data-parallel ranks already: "
        "lower training.micro_batch, or raise another parallel degree\n");
}
