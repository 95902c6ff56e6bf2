#include "smp/runtime/parallel/built_rank.h"

#include <doctest/doctest.h>

#include "runtime/state_plans.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/layout.h"
#include "smp/planner/memory/memory_model.h"

// One rank of a plan, built alone.

using namespace smp;
using namespace smp::layout;
using namespace smp::ledger;
using namespace smp::memory;
using namespace smp::mesh;
using namespace smp::parallel;

namespace {

Plan planned(const Degrees& degrees, Sharding sharding, Precision precision) {
  Plan plan = small_plan(ModelFamily::kLlama, degrees);
  plan.job.parallel.sharding = sharding;
  plan.job.parallel.shard_optimizer_state = false;
  plan.job.training.precision = precision;
  close_plain_keys(plan.job);
  plan.predictions.ranks = predict_memory(plan);
  return plan;
}

int64_t held(const BuiltRank& built, MemoryCategory category) {
  return built.held.by_category[static_cast<size_t>(category)];
}

int64_t sum(const std::vector<int64_t>& buffers) {
  int64_t all = 0;
  for (const int64_t elements : buffers) all += elements;
  return all;
}

}  // namespace

TEST_CASE("a ZeRO-3 rank never holds more than its shard and the shared buffers, nor builds more") {
  constexpr int64_t kShards = 64;
  const Plan plan =
      planned({.tensor = 2, .shard = kShards}, Sharding::kParameters, Precision::kFp32);
  const RankLayout layout = rank_layout(plan, 5);
  const BuiltRank built = build_rank(plan, 5);
  CHECK(built.updated == built.parameters / kShards);
  CHECK(held(built, MemoryCategory::kWeights) ==
        4 * (layout.elements / kShards + sum(layout.weight_buffers)));
  CHECK(held(built, MemoryCategory::kGradients) ==
        4 * (layout.elements / kShards + sum(layout.gradient_buffers)));
  CHECK(held(built, MemoryCategory::kOptimizer) == 8 * layout.elements / kShards);
  CHECK(built.peak.bytes == built.held.bytes);
  CHECK(built.peak.by_category == built.held.by_category);
}

TEST_CASE("every kind of rank has the states that its plan says") {
  struct Case {
    Degrees degrees;
    Sharding sharding;
    Precision precision;
  };
  for (const Case& one :
       {Case{{.pipeline = 2}, Sharding::kNone, Precision::kFp64},
        Case{{.shard = 3}, Sharding::kOptimizerState, Precision::kBf16},
        Case{{.tensor = 2, .shard = 128, .replica = 4}, Sharding::kGradients, Precision::kFp16},
        Case{{.pipeline = 2, .shard = 200}, Sharding::kParameters, Precision::kBf16}}) {
    const Plan plan = planned(one.degrees, one.sharding, one.precision);
    CAPTURE(plan.degrees.world());
    for (const int64_t rank : {int64_t{0}, plan.degrees.world() - 1}) {
      const BuiltRank built = build_rank(plan, rank);
      const std::string text = describe(built, plan);
      CAPTURE(text);
      CHECK(text.find("\nweights, gradients and optimizer state are as planned: ") !=
            std::string::npos);
    }
  }
}

TEST_CASE("what cannot be built is refused") {
  const Plan plan = planned({.shard = 2}, Sharding::kParameters, Precision::kFp32);
  CHECK_THROWS_WITH_AS(build_rank(plan, 2), "rank 2 does not exist: the plan has ranks 0 to 1",
                       ConfigError);
  Plan fp8 = plan;
  fp8.job.training.precision = Precision::kFp8;
  CHECK_THROWS_WITH_AS(build_rank(fp8, 0),
                       "the engine cannot build this plan:\n"
                       "  training.precision: fp8 or nvfp4 (the engine "
                       "runs fp64, fp32, bf16 and fp16)",
                       ConfigError);
  Plan small = plan;
  small.job.cluster.memory_per_process_bytes = 100000;
  CHECK_THROWS_AS(build_rank(small, 0), OutOfMemory);
}
