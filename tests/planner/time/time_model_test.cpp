#include "smp/planner/time/time_model.h"

#include <doctest/doctest.h>

#include "links/link_model.h"
#include "plan/plan_samples.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/spec/seen_pairs.h"
#include "smp/planner/prediction/predict.h"
#include "time/pipeline_time.h"

using namespace smp;
using namespace smp::links;
using namespace smp::model;
using namespace smp::prediction;
using namespace smp::time;

namespace {

Plan timed_plan(const SampleLayout& layout) {
  Plan plan = sample_plan(small_gpt2(), layout);
  ClusterSpec& cluster = plan.job.cluster;
  cluster.fp32_flops_per_s = 1e9;
  cluster.matmul_efficiency = 0.5;
  cluster.memory_bytes_per_s = 1e9;
  cluster.intra_host_bytes_per_s = 1e8;
  return plan;
}

}  // namespace

TEST_CASE("the bubble of equal stages is (p-1)/(m+p-1), of both schedules") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved}) {
    for (const int64_t stages : {1, 2, 3, 4}) {
      for (const int64_t m : {1, 2, 4, 7}) {
        const PipelineCosts costs(static_cast<size_t>(stages), {{1.0, 2.0, 0, 0, 0}});
        const PipelineTime time = simulate_pipeline(
            costs, schedule::ScheduleShape{.kind = kind, .stages = stages, .microbatches = m});
        CHECK(time.makespan_s == doctest::Approx(3.0 * static_cast<double>(m + stages - 1)));
        CHECK(time.idle_s[0] == doctest::Approx(3.0 * static_cast<double>(stages - 1)));
      }
    }
  }
}

TEST_CASE("a message of one second delays the next stage by one second") {
  const PipelineCosts costs = {{{1, 1, 0, 1, 0}}, {{1, 1, 0, 0, 1}}};
  const PipelineTime time = simulate_pipeline(costs, schedule::ScheduleShape{.stages = 2});
  CHECK(time.makespan_s == doctest::Approx(6));  // 4 of computing, 2 messages
}

TEST_CASE("where a step goes sums to the step") {
  for (const SampleLayout& layout :
       {SampleLayout{}, SampleLayout{.tensor = 2}, SampleLayout{.pipeline = 3},
        SampleLayout{.pipeline = 2, .tensor = 2, .shard = 2}}) {
    const TimePrediction time = predict_time(timed_plan(layout));
    CHECK(time.step_ns > 0);
    CHECK(time.step_ns == time.compute_ns + time.tensor_ns + time.sharding_ns + time.offload_ns +
                              time.bubble_ns + time.optimizer_ns);
    CHECK(static_cast<int64_t>(time.stage_busy_ns.size()) == layout.pipeline);
    for (const int64_t busy : time.stage_busy_ns) CHECK(busy <= time.step_ns);
  }
}

TEST_CASE("compute time is flops over the rate that matmuls reach") {
  Plan plan = timed_plan({.microbatches = 2});
  plan.job.cluster.memory_bytes_per_s = 0;  // unknown: no term
  plan.job.cluster.intra_host_bytes_per_s = 0;
  // 6 flops for each token and matrix element (the tied table is the head's matrix), and 12 for
  // each pair of a query and a key that it sees, and element of the model's width.
  const ModelSpec& model = plan.job.model;
  const double tokens = 2 * 16, pairs = 2 * seen_pairs(model, 16);
  const auto width = static_cast<double>(model.hidden_size);
  double flops = 6 * tokens * static_cast<double>(model.vocab_size) * width;
  for (const LayerSpec& layer : layers_of(model)) {
    if (!is_transformer_block(layer.kind)) continue;
    flops += 12 * pairs * width;
    for (const ParameterSpec& parameter : parameters_of(model, layer)) {
      if (!parameter.is_vector) {
        flops += 6 * tokens * static_cast<double>(parameter.rows * parameter.cols);
      }
    }
  }
  CHECK(static_cast<double>(predict_time(plan).step_ns) ==
        doctest::Approx(2 * flops / 0.5e9 * 1e9).epsilon(1e-6));
}

TEST_CASE("checkpointing computes each block's forward twice") {
  Plan plan = timed_plan({});
  plan.job.cluster.memory_bytes_per_s = 0;
  const int64_t without = predict_time(plan).compute_ns;
  plan.job.parallel.activation_checkpointing = true;
  plan.job.parallel.recompute = Recompute::kFull;
  const int64_t with = predict_time(plan).compute_ns;
  CHECK(with > without * 5 / 4);
  CHECK(with < without * 4 / 3);  // the head is not computed again
}

TEST_CASE("the members of a host share its links to the others") {
  ClusterSpec cluster;
  cluster.intra_host_bytes_per_s = 1e12;
  cluster.inter_host_bytes_per_s = 1e9;
  // 64 MB whole, 15/16 of it round eight rings, each over a link of 1 GB/s.
  CHECK(all_gather_s(64e6, {16, 2, 8}, cluster) == doctest::Approx(60e6 / 8e9));
  CHECK(all_gather_s(64e6, {16, 1, 16}, cluster) == doctest::Approx(60e6 / 1e12));
  CHECK(placement_of({0, 8, 1, 9}, 8).hosts == 2);
  CHECK(placement_of({0, 8, 1, 9}, 8).most_on_a_host == 2);
}

TEST_CASE("a cluster without rates has no predicted time") {
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 2});
  CHECK(predict_time(plan).step_ns == 0);
  CHECK(predict(plan).step_ns == 0);
  CHECK(predict(plan).tokens_per_step == 8 * 16);
}
