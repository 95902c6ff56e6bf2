#include "smp/plan/engine_rules.h"

#include <doctest/doctest.h>

#include "plan_samples.h"

using namespace smp;
using Texts = std::vector<std::string>;

TEST_CASE("the engine runs what it can, drawing each rank's own weights included") {
  Plan plan = sample_plan(gpt2_124m(), {.pipeline = 2, .tensor = 2, .shard = 2});
  CHECK(what_engine_cannot_run(plan).empty());
  plan.job.parallel.delayed_parameter_initialization = true;
  CHECK(what_engine_cannot_run(plan).empty());
}

TEST_CASE("a host holds 256 ranks at most") {
  CHECK(what_engine_cannot_run(sample_plan(gpt2_124m(), {.replica = 256})).empty());
  CHECK(what_engine_cannot_run(sample_plan(gpt2_124m(), {.replica = 257})) ==
        Texts{"cluster.processes_per_host: more than 256 (the engine runs up to 256 ranks on a "
              "host)"});
}

TEST_CASE("a host holds 256 groups of ranks at most, the world's included") {
  const ModelSpec gpt2 = gpt2_124m();
  // 127 pipelines, 127 pairs with a tied embedding, 2 data groups and the world are 257.
  CHECK(what_engine_cannot_run(sample_plan(gpt2, {.pipeline = 2, .replica = 127})) ==
        Texts{"parallel degrees with more than 256 groups of ranks (the engine opens up to 256: "
              "give one degree more of the ranks, or use fewer ranks)"});
  CHECK(what_engine_cannot_run(sample_plan(gpt2, {.pipeline = 2, .replica = 126})).empty());
}
