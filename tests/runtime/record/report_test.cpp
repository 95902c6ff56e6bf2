#include <doctest/doctest.h>

#include "runtime/state_plans.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/record/run_report.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::layout;
using namespace smp::mesh;
using namespace smp::record;
using namespace smp::text;

namespace {

RankMeasurements facts_of(int64_t rank) {
  RankMeasurements facts;
  facts.rank = rank;
  facts.peak.bytes = 1000 + rank;
  facts.peak.by_category[static_cast<size_t>(MemoryCategory::kOptimizer)] = 1000 + rank;
  facts.peak.phase = {"backward", 3, 1, 2};
  facts.busy_s = 3;
  facts.idle_s = 1;
  return facts;
}

// What a rank counts that sends exactly what the plan says, in `steps` steps.
std::vector<TrafficCount> planned_traffic(const Plan& plan, int64_t rank, int64_t steps) {
  std::vector<TrafficCount> counts;
  for (const Traffic& planned : step_traffic(plan, rank)) {
    add_traffic(counts, {{planned.label, planned.op, static_cast<int>(planned.group_size),
                          planned.calls * steps, planned.wire_bytes * steps}});
  }
  return counts;
}

}  // namespace

TEST_CASE("counts of one label, op and group size are joined, others kept apart") {
  std::vector<TrafficCount> all;
  add_traffic(all, {{"b", CollectiveOp::kSend, 2, 1, 10}});
  add_traffic(all, {{"a", CollectiveOp::kAllReduce, 2, 1, 5},
                    {"b", CollectiveOp::kSend, 2, 2, 30},
                    {"b", CollectiveOp::kSend, 3, 1, 7}});
  REQUIRE(all.size() == 3);
  CHECK(all[0].label == "a");
  CHECK(all[1].calls == 3);
  CHECK(all[1].wire_bytes == 40);
  CHECK(all[2].group_size == 3);
}

TEST_CASE("every rank gets every rank's facts") {
  run_ranks(3, [](Communicator& world) {
    RankMeasurements mine = facts_of(world.rank());
    mine.traffic = {{"tensor.forward", CollectiveOp::kAllReduce, 2, 8, 4096}};
    const std::vector<RankMeasurements> all = gather_rank_measurements(mine, world);
    REQUIRE(all.size() == 3);
    for (int64_t rank = 0; rank < 3; ++rank) {
      const RankMeasurements& facts = all[static_cast<size_t>(rank)];
      CHECK(facts.rank == rank);
      CHECK(facts.peak.bytes == 1000 + rank);
      CHECK(facts.peak.by_category == facts_of(rank).peak.by_category);
      CHECK(facts.peak_phase == "step 3: backward, microbatch 1, layer 2");
      CHECK(facts.resident_peak_bytes > 1 << 20);
      CHECK(facts.idle_s == 1);
      REQUIRE(facts.traffic.size() == 1);
      CHECK(facts.traffic[0].label == "tensor.forward");
      CHECK(facts.traffic[0].wire_bytes == 4096);
    }
  });
}

TEST_CASE("a run cannot be compared with a plan that predicts nothing for one of its ranks") {
  Plan plan = small_plan(ModelFamily::kGpt2, {.tensor = 2});
  plan.predictions.ranks.resize(1);
  CHECK(&prediction_for(plan, {}) == plan.predictions.ranks.data());
  CHECK_THROWS_WITH_AS(report_json(plan, {}, {facts_of(0), facts_of(1)}),
                       "the plan has no prediction for stage 0, tensor rank 1, which the run "
                       "report needs: make the plan again with smp-plan",
                       ConfigError);
}

TEST_CASE("the report sets each rank's memory and traffic beside the plan's") {
  Plan plan = small_plan(ModelFamily::kGpt2, {.tensor = 2, .replica = 2});
  plan.job.name = "small";
  plan.predictions.step_ns = 250'000'000;
  for (const int64_t tensor : {0, 1}) {
    RankPrediction prediction;
    prediction.tensor = tensor;
    prediction.peak_bytes = 990 + tensor;
    prediction.peak_phase = "backward";
    prediction.terms = {{"momentum", MemoryCategory::kOptimizer, 400, "", ""},
                        {"variance", MemoryCategory::kOptimizer, 590 + tensor, "", ""}};
    plan.predictions.ranks.push_back(prediction);
  }
  std::vector<RankMeasurements> ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(facts_of(rank));
    ranks.back().traffic = planned_traffic(plan, rank, 5);
    add_traffic(ranks.back().traffic, {{"setup.start", CollectiveOp::kAllReduce, 4, 1, 999},
                                       {"save.weights", CollectiveOp::kSend, 4, 9, 999}});
  }
  RunMeasurements run;
  run.steps = 5;
  run.first_loss = 5.5;
  run.last_loss = 2.5;
  run.tokens_per_s = 1e4;
  run.measured_step_s = 0.3;
  const Json report = Json::parse(report_json(plan, run, ranks));
  CHECK(!report.contains("ended_early"));
  run.evaluation_loss = 2.5;
  run.best_loss = 2.25;
  run.best_step = 4;
  run.ended_early = "at step 5 of 9: why";
  const Json ended = Json::parse(report_json(plan, run, ranks));
  CHECK(ended.at("ended_early") == "at step 5 of 9: why");
  CHECK(ended.at("evaluation").at("best") == Json{{"loss", 2.25}, {"step", 4}});

  CHECK(report.at("plan") == Json{{"pipeline_parallel_degree", 1},
                                  {"tensor_parallel_degree", 2},
                                  {"data_parallel_degree", 2},
                                  {"sharded_data_parallel_degree", 1},
                                  {"replica_degree", 2}});
  CHECK(report.at("loss") == Json{{"first", 5.5}, {"last", 2.5}});
  CHECK(report.at("tokens_per_s") == 1e4);
  CHECK(report.at("predicted_step_s") == 0.25);
  CHECK(report.at("measured_step_s") == 0.3);
  CHECK(report.at("idle") == Json{0.25, 0.25, 0.25, 0.25});
  REQUIRE(report.at("ranks").size() == 4);
  const Json& rank = report.at("ranks")[3];
  CHECK(rank.at("rank") == 3);
  CHECK(rank.at("coordinates") ==
        Json{{"pipeline", 0}, {"tensor", 1}, {"shard", 0}, {"replica", 1}});
  CHECK(rank.at("predicted_peak_bytes") == 991);
  CHECK(rank.at("measured_peak_bytes") == 1003);
  CHECK(rank.at("predicted_bytes_by_category").at("optimizer") == 991);
  CHECK(rank.at("measured_bytes_by_category").at("optimizer") == 1003);
  CHECK(rank.at("measured_bytes_by_category").at("weights") == 0);
  CHECK(rank.at("predicted_wire_bytes") > 0);
  CHECK(rank.at("measured_wire_bytes") == rank.at("predicted_wire_bytes"));
  for (const Json& row : rank.at("wire")) {
    CHECK(row.at("measured_calls") == row.at("predicted_calls"));
    CHECK(row.at("measured_wire_bytes") == row.at("predicted_wire_bytes"));
  }
}
