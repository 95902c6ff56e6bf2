#include "search/pricer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "planner/random_jobs.h"
#include "search/search_space.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::cost;
using namespace smp::memory;
using namespace smp::search;
using namespace smp::time;
using smp::test::Draw;
using smp::test::some_job;

namespace {

// Some jobs freeze the lower half of their blocks, with the embedding or without, or all weights.
// In some a layer's time depends on the hosts of the pipeline, in some on the number of
// microbatches.
JobSpec tuned(JobSpec job, int kind) {
  if (kind == 0) return job;
  job.parallel.framework = framework::framework_named("megatron-core");
  if (kind == 4) {
    job.parallel.framework = framework::framework_named("nanotron");
    job.cluster.processes_per_host = 4;
    return job;
  }
  if (kind == 5) {
    job.training.precision = Precision::kFp8;
    job.cluster.fp8_flops_per_s = 2e15;
    return job;
  }
  if (kind == 3) job.training.lora = {.rank = 8, .quantized = QuantizedKind::kNf4};
  if (kind == 1) job.training.frozen = {"embedding"};
  if (kind != 3) {
    job.training.frozen.push_back(fmt::format("layers.0-{}", job.model.num_layers / 2));
    if (job.model.num_layers == 1) job.training.frozen.back() = "layers.0";
  }
  return job;
}

// Any layout of a split, at random.
LayoutChoice some_layout(Draw& draw, const SearchSpace& space, const SearchSpace::Split& split,
                         const BatchShape& batch) {
  LayoutChoice choice = space.first_choice(split, batch);
  const auto schedules = space.schedules(split, batch);
  const auto shardings = space.shardings(split);
  const auto any = [&](size_t count) {
    return static_cast<size_t>(draw.of({0, 1, 2, 3, 5, 7, 11})) % count;
  };
  if (!schedules.empty()) space.set_schedule(split, schedules[any(schedules.size())], choice);
  if (!shardings.empty()) {
    const SearchSpace::ShardingChoice sharding = shardings[any(shardings.size())];
    choice.sharding = sharding.kind;
    choice.shard = sharding.degree;
    choice.replica = static_cast<int32_t>(split.data / sharding.degree);
  }
  choice.recompute = space.recomputes()[any(space.recomputes().size())];
  if (choice.recompute == Recompute::kFull && draw.coin()) choice.recompute_layers = 1;
  choice.offload_activations = draw.coin();
  choice.offload_optimizer = draw.coin();
  choice.offload_parameters = choice.sharding == Sharding::kParameters && draw.coin();
  choice.sequence_parallel = space.sequence_parallel(split).back() && draw.coin();
  return choice;
}

}  // namespace

TEST_CASE("what a pricer keeps of other layouts changes no price") {
  Draw draw(77);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const JobWithDefaults defaulted =
        with_defaults(tuned(some_job(draw), i % 6), Strategy::kFastest);
    const JobSpec& job = defaulted.job;
    const SearchSpace space(defaulted);
    Pricer pricer(job);
    for (int k = 0; k < 3; ++k) {
      for (const SearchSpace::Split& split : space.splits()) {
        const BatchChoices batches = every_batch(job, split.pipeline, split.data, split.context);
        for (const BatchShape& batch : batches.shapes) {
          const LayoutChoice choice = some_layout(draw, space, split, batch);
          const LayerBytes bytes = layer_bytes(job, choice);
          const Candidate candidate = pricer.price(choice);
          CAPTURE(describe(choice));
          REQUIRE(candidate.step_s ==
                  estimate_time(job, choice, bytes, layer_seconds(job, choice)).step_s);
          REQUIRE(candidate.peak_bytes == estimate_memory(job, choice, bytes).peak_bytes);
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 1'000);
}
