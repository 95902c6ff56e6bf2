#include "smp/planner/calibration/scale_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/text/json.h"
#include "smp/planner/search/search.h"

using namespace smp;
using namespace smp::calibration;
using namespace smp::choice;
using namespace smp::jobfile;
using namespace smp::memory;
using namespace smp::mesh;
using namespace smp::prediction;
using namespace smp::runs;
using namespace smp::search;
using namespace smp::text;
using namespace smp::time;

namespace {

Plan plan_of(int64_t sequence) {
  const JobSpec job = read_job(
      {{"job",
        fmt::format("model: {{family: gpt2, num_layers: 4, hidden_size: 64, num_heads: 4, "
                    "vocab_size: 256, max_positions: 256}}\n"
                    "training: {{sequence_length: {}, global_batch: 2}}\n"
                    "cluster: {{processes_per_host: 1, device: cpu, memory_per_process: 1GiB, "
                    "fp32_flops_per_s: 10G, memory_bytes_per_s: 9G}}\n",
                    sequence)}});
  return std::get<Plan>(plan_job(job).best);
}

// What the worker would write, had it needed 1.25 times the activations and twice the time.
RunReport measured(const Plan& plan) {
  Json rank = {{"rank", 0},
               {"coordinates", {{"pipeline", 0}, {"tensor", 0}, {"shard", 0}, {"replica", 0}}},
               {"measured_peak_bytes", plan.predictions.ranks[0].peak_bytes},
               {"measured_peak_phase", "step 3: backward"},
               {"wire", Json::array()}};
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    int64_t bytes = 0;
    for (const MemoryTerm& term : plan.predictions.ranks[0].terms) {
      if (term.category == category) bytes += term.bytes;
    }
    if (category == MemoryCategory::kActivations) bytes += bytes / 4;
    rank["measured_bytes_by_category"][std::string(name_of(category))] = bytes;
  }
  const Json json = {{"plan",
                      {{"pipeline_parallel_degree", 1},
                       {"tensor_parallel_degree", 1},
                       {"sharded_data_parallel_degree", 1},
                       {"replica_degree", 1}}},
                     {"steps", 10},
                     {"measured_step_s", double(plan.predictions.step_ns) * 2e-9},
                     {"ranks", {rank}}};
  return parse_run_report("r.json", json.dump());
}

}  // namespace

TEST_CASE("a measured run is scaled, category by category, to a longer sequence") {
  const Plan run = plan_of(64), longer = plan_of(256);
  const ScaledRun scaled = scale_run(run, measured(run), longer);
  double sum = 0;
  for (const ScaledTerm& term : scaled.memory) {
    CHECK(term.ratio == doctest::Approx(term.name == "activations" ? 1.25 : 1.0).epsilon(1e-5));
    sum += term.scaled();
  }
  CHECK(scaled.peak_bytes == doctest::Approx(sum));
  CHECK(scaled.peak_bytes > double(longer.predictions.ranks[0].peak_bytes));
  CHECK(scaled.step.ratio == doctest::Approx(2.0));
  CHECK(scaled.step.predicted == doctest::Approx(double(longer.predictions.step_ns) * 1e-9));
}

TEST_CASE("a published run has one ratio for all memory") {
  const Plan run = plan_of(64), longer = plan_of(256);
  const CalibrationRun published{.name = "paper",
                                 .plan = run,
                                 .step_s = double(run.predictions.step_ns) * 3e-9,
                                 .peak_bytes = run.predictions.ranks[0].peak_bytes / 2,
                                 .device_bytes = {}};
  const ScaledRun scaled = scale_run(published, longer);
  CHECK(scaled.peak_bytes ==
        doctest::Approx(double(longer.predictions.ranks[0].peak_bytes) / 2).epsilon(1e-5));
  CHECK(scaled.step.ratio == doctest::Approx(3.0));
}
