#include "smp/planner/runpage/planned_trace.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "planner/run_samples.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/runinfo/trace_file.h"
#include "smp/planner/time/time_model.h"
#include "trace_check.h"

using namespace smp;
using namespace smp::jobfile;
using namespace smp::layout;
using namespace smp::mesh;
using namespace smp::runinfo;
using namespace smp::runpage;
using namespace smp::schedule;
using namespace smp::search;
using namespace smp::time;
using namespace smp::test;

namespace {

Plan plan_with(const std::string& parallel, const std::string& rates, int ranks) {
  const JobSpec job = read_job(
      {{"job", fmt::format("model: {{family: gpt2, num_layers: 4, hidden_size: 64, num_heads: 4, "
                           "vocab_size: 256, max_positions: 64}}\n"
                           "training: {{sequence_length: 64, global_batch: 8}}\n"
                           "cluster: {{processes_per_host: {}, device: cpu, "
                           "memory_per_process: 1GiB{}}}\n"
                           "parallel: {{{}}}\n",
                           ranks, rates, parallel)}});
  SearchResult result = plan_job(job);
  return std::get<Plan>(result.best);
}

constexpr const char* kRates =
    ", fp32_flops_per_s: 10G, memory_bytes_per_s: 9G, intra_host_bytes_per_s: 2G, "
    "intra_host_latency_s: 0.00001";

std::string planned_text(const Plan& plan, bool by_rank) {
  std::string text;
  write_planned_trace(plan, by_rank, [&](std::string_view part) { text += part; });
  return text;
}

}  // namespace

TEST_CASE("a planned trace has the schedule's actions in their order, within the predicted step") {
  for (const char* parallel :
       {"pipeline_parallel_degree: 1, tensor_parallel_degree: 1, "
        "sharded_data_parallel_degree: 4, sharding: gradients",
        "pipeline_parallel_degree: 1, tensor_parallel_degree: 1, "
        "sharded_data_parallel_degree: 2",
        "pipeline_parallel_degree: 2, sharded_data_parallel_degree: 1",
        "pipeline_parallel_degree: 2, sharded_data_parallel_degree: 2, sharding: parameters, "
        "recompute: full",
        "pipeline_parallel_degree: 4, pipeline: simple", "pipeline_parallel_degree: 4",
        "pipeline_parallel_degree: 2, pipeline: virtual, virtual_pipeline_degree: 2",
        "pipeline_parallel_degree: 2, pipeline: zb_h1",
        "pipeline_parallel_degree: 2, pipeline: zb_v", "tensor_parallel_degree: 2"}) {
    CAPTURE(parallel);
    const Plan plan = plan_with(parallel, kRates, 4);
    const Schedule schedule = make_schedule(schedule_parameters(plan));
    const std::string text = planned_text(plan, false);
    const bool has_replicas = plan.degrees.shard > 1 && plan.degrees.replica > 1;
    CHECK((text.find("\"reduce_replicas\"") != std::string::npos) == has_replicas);
    const TraceCheck check(text);
    CHECK(check.problems() == std::vector<std::string>{});
    CHECK(check.about().at("kind") == "planned");
    CHECK(static_cast<int64_t>(check.processes().size()) == plan.degrees.pipeline);
    CHECK((check.flows() > 0) == (plan.degrees.pipeline > 1));
    const std::vector<ReadSlice> slices = parse_trace("planned.json", text);
    const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
    int64_t end = 0;
    for (int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
      const int64_t pid = kPlannedPids + mesh.rank_of({.pipeline = stage});
      CHECK(traced_actions(slices, pid, 1) ==
            scheduled_actions(schedule.actions[static_cast<size_t>(stage)]));
      int64_t before = 0;
      for (const ReadSlice& slice : slices) {
        if (slice.pid != pid || slice.thread != kComputeThread) continue;
        end = std::max(end, slice.end_ns);
        if (slice.category == "step") continue;
        CHECK(slice.begin_ns >= before);
        before = slice.end_ns;
        if (slice.name == "forward") CHECK(slice.end_ns > slice.begin_ns);
      }
    }
    const int64_t step_ns = predict_time(plan).step_ns;
    CHECK(end <= step_ns + 1000);
    CHECK(end > step_ns / 2);
    if (plan.degrees.pipeline == 1) CHECK(std::abs(end - step_ns) <= 1000);
  }
}

TEST_CASE("a planned trace by rank has a process for each, joined to the rank of its own column") {
  const Plan plan =
      plan_with("pipeline_parallel_degree: 2, sharded_data_parallel_degree: 2", kRates, 4);
  const std::string text = planned_text(plan, true);
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  REQUIRE(check.processes().size() == 4);
  const Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  for (int64_t rank = 0; rank < 4; ++rank)
    CHECK(check.processes().at(kPlannedPids + rank) ==
          "planned: " + trace_name(rank, mesh.coord_of(rank), plan.degrees));
  CHECK(check.flows() == 2 * TraceCheck(planned_text(plan, false)).flows());
}

TEST_CASE("a planned trace of another framework has passes and messages alone") {
  const JobSpec job =
      read_job({{"job",
                 "model: gpt2-1.5b\ncluster: dgx-a100-80gb\nparallel: {framework: megatron-core, "
                 "pipeline_parallel_degree: 4, tensor_parallel_degree: 1}\n"
                 "training: {global_batch: 16}\n"}},
               {"cluster.hosts=1"});
  const Plan plan = std::get<Plan>(plan_job(job).best);
  const std::string text = planned_text(plan, false);
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  CHECK(check.flows() > 0);
  int64_t end = 0, passes = 0;
  for (const ReadSlice& slice : parse_trace("planned.json", text)) {
    CHECK(slice.name.find("reduce") == std::string::npos);
    if (slice.thread == kComputeThread) end = std::max(end, slice.end_ns);
    passes += slice.name == "forward" ? 1 : 0;
  }
  const int64_t chunks = plan.job.parallel.virtual_pipeline_degree.value_or(1);
  CHECK(passes == 4 * chunks * *plan.job.training.microbatches);
  const int64_t step_ns = predict_time(plan).step_ns;
  CHECK(end <= step_ns + 1000);
  CHECK(end > step_ns / 2);
}

TEST_CASE("what cannot be drawn is refused, with what to do") {
  CHECK(error_of([] { planned_text(plan_with("pipeline_parallel_degree: 2", "", 2), false); }) ==
        "the time of an action is unknown because the cluster has no rates: set "
        "cluster.fp32_flops_per_s and memory_bytes_per_s, or use a cluster of configs/clusters");
  Plan plan = plan_with("pipeline_parallel_degree: 2", kRates, 4);
  plan.job.training.microbatches = 100'000;
  int64_t actions = 0;
  for (const auto& stage : make_schedule(schedule_parameters(plan)).actions)
    actions += static_cast<int64_t>(stage.size());
  CHECK(error_of([&] { planned_text(plan, false); }) ==
        fmt::format("the schedule has {} actions, more than the 1000000 that a viewer shows: write "
                    "fewer training.microbatches",
                    actions));
  plan.job.training.microbatches = 20'000;
  actions = 0;
  for (const auto& stage : make_schedule(schedule_parameters(plan)).actions)
    actions += static_cast<int64_t>(stage.size());
  REQUIRE(actions < kMostPlannedSlices);
  CHECK(error_of([&] { planned_text(plan, true); }) ==
        fmt::format("the schedule has {} actions on all ranks, more than the 1000000 that a viewer "
                    "shows: leave --ranks out, for {}",
                    2 * actions, actions));
}
