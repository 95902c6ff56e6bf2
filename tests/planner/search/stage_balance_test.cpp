#include "search/stage_balance.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "planner/job_samples.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/report/report.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::layout;
using namespace smp::report;
using namespace smp::search;
using namespace smp::test;

namespace {

using Blocks = std::vector<int64_t>;

// A head as dear as three blocks: 12 of them on four ranks.
JobSpec headed_job(const std::string& method, PipelineKind kind) {
  JobSpec job = small_job();
  job.name = "headed";
  job.model.num_layers = 12;
  job.model.hidden_size = 256;
  job.model.num_heads = job.model.num_kv_heads = 8;
  job.model.head_dim = 32;
  job.model.ffn_hidden_size = 1024;
  job.model.vocab_size = 8192;
  job.model.max_positions = 256;
  job.cluster.fp32_flops_per_s = 95e9;
  job.cluster.matmul_efficiency = 0.9;
  job.cluster.memory_bytes_per_s = 9e9;
  job.cluster.intra_host_bytes_per_s = 2e9;
  job.training.sequence_length = 256;
  job.training.micro_batch = 4;
  job.training.microbatches = 8;
  job.training.global_batch = 32;
  job.parallel.pipeline_parallel_degree = 4;
  job.parallel.pipeline = kind;
  job.parallel.partition_method = method;
  return job;
}

const Blocks& partition_of(const Plan& plan) { return plan.job.parallel.partition; }

}  // namespace

TEST_CASE("stages are filled until none has less to do") {
  PartitionWeights weights;
  weights.blocks.assign(12, 1.0);
  weights.last = 3;
  CHECK(filled_stages(weights, {.kind = PipelineKind::kInterleaved, .stages = 4}) ==
        Blocks{4, 4, 3, 1});
  CHECK(
      filled_stages(weights, {.kind = PipelineKind::kVirtual, .stages = 4, .virtual_stages = 2}) ==
      Blocks{4, 3, 3, 2});
  CHECK(filled_stages(weights, {.kind = PipelineKind::kZbV, .stages = 4}) == Blocks{2, 4, 3, 3});
  // Where no rates are known nothing is worth uneven stages.
  CHECK(gains_uneven_stages(weights, {.kind = PipelineKind::kInterleaved, .stages = 4}));
  PartitionWeights unknown = weights;
  unknown.first = unknown.last = 0;
  std::fill(unknown.blocks.begin(), unknown.blocks.end(), 0.0);
  CHECK(!gains_uneven_stages(unknown, {.kind = PipelineKind::kInterleaved, .stages = 4}));
  CHECK(filled_stages(weights, {.kind = PipelineKind::kVirtual, .stages = 4, .virtual_stages = 4})
            .empty());
}

TEST_CASE("auto takes layers from the stage with the head, and the plan holds what it found") {
  const Plan even = practical_plan_of(headed_job("uniform", PipelineKind::kInterleaved));
  const Plan plan = practical_plan_of(headed_job("auto", PipelineKind::kInterleaved));
  CHECK(partition_of(even) == Blocks{3, 3, 3, 3});
  CHECK(partition_of(plan) == Blocks{3, 4, 4, 1});
  CHECK(plan.job.parallel.partition_method.empty());
  CHECK(plan.predictions.step_ns < 0.8 * static_cast<double>(even.predictions.step_ns));
  CHECK(stage_balance(plan) < 1.1);
  CHECK(stage_balance(even) > 1.5);
  CHECK(plan.reasons.back() ==
        "stages of 3, 2 x 4, 1 layers: the division with the shortest slowest stage");
}

TEST_CASE("auto is faster than even stages with every schedule, and never slower") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved,
                                  PipelineKind::kZbH1, PipelineKind::kVirtual}) {
    const Plan even = practical_plan_of(headed_job("uniform", kind));
    const Plan plan = practical_plan_of(headed_job("auto", kind));
    CHECK(plan.predictions.step_ns < even.predictions.step_ns);
  }
  // 12 layers are not 8 equal chunks: only a method that deals them deals these.
  CHECK(practical_plan_of(headed_job("auto", PipelineKind::kZbV)).predictions.step_ns > 0);
}

TEST_CASE("without a head to speak of auto is even") {
  JobSpec job = headed_job("auto", PipelineKind::kInterleaved);
  job.model.vocab_size = 16;
  CHECK(partition_of(practical_plan_of(job)) == Blocks{3, 3, 3, 3});
}

TEST_CASE("parameters and types are balanced by what they count") {
  const Plan by_parameters =
      practical_plan_of(headed_job("parameters", PipelineKind::kInterleaved));
  CHECK(partition_of(by_parameters) == Blocks{2, 4, 4, 2});
  CHECK(by_parameters.reasons.back() ==
        "stages of 2, 2 x 4, 2 layers: numbers of parameters as equal as whole layers allow");
  const Plan by_type =
      practical_plan_of(headed_job("type:embedding|layers.0$|head", PipelineKind::kInterleaved));
  CHECK(by_type.reasons.back() ==
        "stages of " + layers_of_stages(by_type).substr(10) +
            ": equal numbers of the layers that match 'embedding|layers.0$|head'");
  const Plan in_chunks = practical_plan_of(headed_job("parameters", PipelineKind::kZbV));
  CHECK(partition_of(in_chunks).size() == 8);
}

TEST_CASE("a balanced partition keeps the memory of each stage") {
  JobSpec job = headed_job("auto", PipelineKind::kZbH1);
  int64_t fullest = 0;
  for (const RankPrediction& rank : practical_plan_of(job).predictions.ranks) {
    fullest = std::max(fullest, rank.peak_bytes);
  }
  job.cluster.memory_per_process_bytes = fullest - 1;
  const Plan plan = practical_plan_of(job);
  for (const RankPrediction& rank : plan.predictions.ranks) CHECK(rank.peak_bytes < fullest);
}

TEST_CASE("the search finds uneven stages by itself, and leaves them even when told to") {
  JobSpec job = headed_job("", PipelineKind::kInterleaved);
  const Plan found = std::get<Plan>(plan_job(job, {.strategy = Strategy::kFastest}).best);
  CHECK(partition_of(found).back() < 3);
  job.parallel.partition_method = "uniform";
  CHECK(partition_of(std::get<Plan>(plan_job(job, {.strategy = Strategy::kFastest}).best)) ==
        Blocks{3, 3, 3, 3});
}

TEST_CASE("a list of chunks is taken as it is") {
  JobSpec job = headed_job("", PipelineKind::kZbV);
  job.parallel.partition = {1, 1, 2, 2, 2, 2, 1, 1};
  const Plan plan = practical_plan_of(job);
  CHECK(partition_of(plan) == job.parallel.partition);
  const SearchResult result = plan_job(job, {.strategy = Strategy::kBestPractice});
  CHECK(report_text(result, {}).find("chunks of 2 x 1, 4 x 2, 2 x 1 layers; the busiest stage") !=
        std::string::npos);
}
