#include "smp/plan/layout/rank_groups.h"

#include <doctest/doctest.h>

#include "plan/plan_samples.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::mesh;

namespace {

std::vector<Axis> axes_of(const ModelSpec& model, const SampleLayout& layout, int64_t rank = 0) {
  std::vector<Axis> axes;
  for (const RankGroup& group : rank_groups(sample_plan(model, layout), rank)) {
    CHECK(group.ranks.size() > 1);
    axes.push_back(group.axis);
  }
  return axes;
}

}  // namespace

TEST_CASE("a rank talks in the groups that its plan's messages need, and in no other") {
  ModelSpec gpt2 = gpt2_124m();
  const ModelSpec llama = llama_sized(4, 64, 8, 2, 128, 256);
  CHECK(axes_of(llama, {}).empty());
  CHECK(axes_of(llama, {.pipeline = 2, .tensor = 2}) ==
        std::vector{Axis::kWorld, Axis::kPipeline, Axis::kTensor});
  CHECK(axes_of(llama, {.tensor = 4}) == std::vector{Axis::kWorld, Axis::kTensor, Axis::kKvHead});
  CHECK(axes_of(gpt2, {.replica = 4}) == std::vector{Axis::kWorld, Axis::kData});
  CHECK(axes_of(gpt2, {.shard = 4}) == std::vector{Axis::kWorld, Axis::kShard});
  CHECK(axes_of(gpt2, {.shard = 2, .replica = 2}) ==
        std::vector{Axis::kWorld, Axis::kShard, Axis::kReplica});
}

TEST_CASE("an axis' own key says what moves its groups' messages, then the key for all") {
  ParallelSpec parallel;
  CHECK(collectives_of(parallel, Axis::kTensor) == std::nullopt);
  parallel.data_collectives = CollectivesKind::kHost;
  parallel.collectives.tensor = CollectivesKind::kNccl;
  CHECK(collectives_of(parallel, Axis::kTensor) == CollectivesKind::kNccl);
  CHECK(collectives_key(parallel, Axis::kTensor) == "parallel.collectives.tensor");
  for (const Axis axis : {Axis::kShard, Axis::kReplica, Axis::kData, Axis::kWorld, Axis::kTied}) {
    CHECK(collectives_of(parallel, axis) == CollectivesKind::kHost);
    CHECK(collectives_key(parallel, axis) == "parallel.data_collectives");
  }
}

TEST_CASE("only the ends of the pipeline share a tied embedding") {
  const SampleLayout layout{.pipeline = 3};
  const std::vector<Axis> middle = {Axis::kWorld, Axis::kPipeline};
  const std::vector<Axis> end = {Axis::kWorld, Axis::kPipeline, Axis::kTied};
  CHECK(axes_of(gpt2_124m(), layout, 0) == end);
  CHECK(axes_of(gpt2_124m(), layout, 1) == middle);
  CHECK(axes_of(gpt2_124m(), layout, 2) == end);
}
