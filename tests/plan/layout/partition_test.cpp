#include "smp/plan/layout/partition.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "plan/list_samples.h"
#include "plan/model_samples.h"
#include "plan/plan_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/schedule/schedule.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::schedule;

namespace {

using Blocks = std::vector<int64_t>;

Blocks per_stage(int64_t num_layers, int64_t stages, const Blocks& partition) {
  return blocks_per_chunk({.kind = PipelineKind::kInterleaved, .stages = stages}, num_layers,
                          partition);
}

double heaviest(const PartitionWeights& weights, const Blocks& partition) {
  const std::vector<double> parts = part_weights(weights, partition);
  return *std::max_element(parts.begin(), parts.end());
}

double squares(const PartitionWeights& weights, const Blocks& partition) {
  double sum = 0;
  for (const double part : part_weights(weights, partition)) sum += part * part;
  return sum;
}

// Every cut of the blocks, one by one.
void each_cut(int64_t blocks, int64_t parts, Blocks& so_far, const auto& visit) {
  if (parts == 1) {
    so_far.push_back(blocks);
    visit(so_far);
    so_far.pop_back();
    return;
  }
  for (int64_t count = 1; count <= blocks - parts + 1; ++count) {
    so_far.push_back(count);
    each_cut(blocks - count, parts - 1, so_far, visit);
    so_far.pop_back();
  }
}

}  // namespace

TEST_CASE("stages share the layers evenly, the first ones hold one more") {
  CHECK(per_stage(5, 3, {}) == Blocks{2, 2, 1});
  CHECK(per_stage(8, 1, {}) == Blocks{8});
  CHECK(per_stage(5, 2, {1, 4}) == Blocks{1, 4});
}

TEST_CASE("chunks share the layers of their stage, or have numbers of their own") {
  const ScheduleShape rounds{.kind = PipelineKind::kVirtual, .stages = 2, .virtual_stages = 2};
  CHECK(blocks_per_chunk(rounds, 8, {}) == Blocks{2, 2, 2, 2});
  CHECK(blocks_per_chunk(rounds, 8, {5, 3}) == Blocks{3, 2, 2, 1});
  CHECK(blocks_per_chunk(rounds, 8, {2, 3, 2, 1}) == Blocks{2, 3, 2, 1});
  const ScheduleShape down_and_up{.kind = PipelineKind::kZbV, .stages = 2};
  CHECK(blocks_per_chunk(down_and_up, 8, {5, 3}) == Blocks{3, 2, 1, 2});
  CHECK(blocks_per_chunk(down_and_up, 8, {1, 2, 2, 3}) == Blocks{1, 2, 2, 3});
}

TEST_CASE("a partition that does not fit is refused with its numbers") {
  CHECK_THROWS_WITH_AS(per_stage(2, 3, {}),
                       "pipeline_parallel_degree (3) exceeds num_layers (2): every stage needs at "
                       "least one layer",
                       ConfigError);
  CHECK_THROWS_WITH_AS(
      per_stage(5, 3, {2, 3}),
      "partition has 2 entries, pipeline_parallel_degree is 3: give one layer count for each stage",
      ConfigError);
  CHECK_THROWS_WITH_AS(per_stage(5, 2, {2, 2}),
                       "partition adds up to 4 layers, but num_layers is 5", ConfigError);
  CHECK(per_stage(5, 3, {0, 5, 0}) == std::vector<int64_t>{0, 5, 0});  // embedding, head alone
  CHECK_THROWS_WITH_AS(per_stage(5, 3, {3, 0, 2}),
                       "partition item 2 is 0: only the first and the last can be without layers",
                       ConfigError);
  const ScheduleShape rounds{.kind = PipelineKind::kVirtual, .stages = 2, .virtual_stages = 3};
  CHECK_THROWS_WITH_AS(blocks_per_chunk(rounds, 8, {4, 2, 2}),
                       "partition has 3 entries, pipeline_parallel_degree is 2: give one layer "
                       "count for each stage, or for each of the 6 chunks",
                       ConfigError);
  CHECK_THROWS_WITH_AS(
      blocks_per_chunk(rounds, 8, {6, 2}),
      "a stage has 2 layers, fewer than its 3 chunks: every chunk needs at least one layer",
      ConfigError);
}

TEST_CASE("a balanced partition is the best of all cuts") {
  std::mt19937 random(7);
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int i = 0; i < 200; ++i) {
    PartitionWeights weights;
    const int64_t blocks = 1 + up_to(8);
    const int64_t parts = 1 + up_to(blocks - 1);
    for (int64_t b = 0; b < blocks; ++b) weights.blocks.push_back(static_cast<double>(up_to(9)));
    weights.first = static_cast<double>(up_to(9));
    weights.last = static_cast<double>(up_to(20));
    double least = std::numeric_limits<double>::infinity();
    double least_squares = least;
    Blocks cut;
    each_cut(blocks, parts, cut, [&](const Blocks& partition) {
      const double worst = heaviest(weights, partition);
      if (worst < least) {
        least = worst;
        least_squares = std::numeric_limits<double>::infinity();
      }
      if (worst == least) least_squares = std::min(least_squares, squares(weights, partition));
    });
    const Blocks found = balanced_partition(weights, parts);
    REQUIRE(static_cast<int64_t>(found.size()) == parts);
    CHECK(heaviest(weights, found) == least);
    CHECK(squares(weights, found) == least_squares);
  }
}

TEST_CASE("a balanced partition of equal blocks is the even one") {
  PartitionWeights weights;
  weights.blocks.assign(14, 1.0);
  CHECK(balanced_partition(weights, 4) == per_stage(14, 4, {}));
  weights.last = 3;
  CHECK(balanced_partition(weights, 4) == Blocks{5, 4, 4, 1});
}

TEST_CASE("a balanced partition keeps its limits, or there is none") {
  PartitionWeights weights;
  weights.blocks.assign(8, 1.0);
  CHECK(balanced_partition(weights, 2, {3, 8}) == Blocks{3, 5});
  CHECK(balanced_partition(weights, 2, {3, 4}).empty());
  CHECK(balanced_partition(weights, 9).empty());
}

TEST_CASE("parameters count the ends of the model, and a tied table where it is copied") {
  const ModelSpec model = small_gpt2();
  const PartitionWeights alone = parameter_weights(model, false);
  const PartitionWeights copied = parameter_weights(model, true);
  CHECK(static_cast<int64_t>(alone.blocks.size()) == model.num_layers);
  CHECK(alone.first == model.hidden_size * (model.vocab_size + model.max_positions));
  CHECK(alone.last == 2 * model.hidden_size);
  CHECK(copied.last == alone.last + static_cast<double>(model.hidden_size * model.vocab_size));
}

TEST_CASE("a type matches the kinds and names of layers, upper and lower case alike") {
  const ModelSpec model = small_gpt2();  // of 5 blocks
  CHECK(type_weights(model, "GPT2_Block").blocks == std::vector<double>(5, 1.0));
  CHECK(type_weights(model, "block").first == 0);
  CHECK(type_weights(model, "embedding|head").first == 1);
  CHECK(type_weights(model, "embedding|head").last == 1);
  CHECK(type_weights(model, "layers\\.[13]$").blocks == std::vector<double>{0, 1, 0, 1, 0});
  CHECK_THROWS_WITH_AS(type_weights(model, "conv"),
                       "partition_method type:conv matches no layer: the model has embedding, "
                       "gpt2_block, head",
                       ConfigError);
}

TEST_CASE("a method that is none is said") {
  CHECK(read_partition_method("uniform").method == PartitionMethod::kUniform);
  CHECK(read_partition_method("type:block").pattern == "block");
  CHECK(read_partition_method("even").problem ==
        "must be uniform, parameters, type:REGEX or auto, not 'even'");
  CHECK(read_partition_method("type:").problem ==
        "needs a regular expression after type:, as in type:block");
  CHECK(read_partition_method("type:(block").problem ==
        "type:(block is not a regular expression: Unmatched ( or \\(");
  CHECK(read_partition_method("type:b{9}").problem ==
        "type:b{9} has a count in braces: write the expression without braces");
}

TEST_CASE("a rank holds the chunks that the partition gives it") {
  Plan plan = sample_plan(small_gpt2(), {.pipeline = 2, .pipeline_kind = PipelineKind::kZbV});
  plan.job.parallel.partition = {1, 2, 1, 1};
  CHECK(rank_layout(plan, 0).chunk_layers == Blocks{2, 2});  // with embedding and head
  CHECK(rank_layout(plan, 1).chunk_layers == Blocks{2, 1});
}

TEST_CASE("the blocks of a list are its layers but the last, which stays on the last stage") {
  Plan plan = sample_plan(small_list(), {.pipeline = 2});
  plan.job.parallel.partition = {2, 3};
  const std::vector<StageLayers> stages = layers_by_stage(plan);
  CHECK(stages[0].chunk_layers == Blocks{2});
  CHECK(stages[1].chunk_layers == Blocks{4});
  CHECK(stages[0].layers.front().index == 0);
  CHECK(model::makes_loss(stages[1].layers.back().kind));
}

TEST_CASE("type: finds the operators of a list, whatever their case") {
  const ModelSpec model = small_list();
  const PartitionWeights weights = type_weights(model, "Conv2D");
  double matches = weights.first + weights.last;
  for (const double weight : weights.blocks) matches += weight;
  CHECK(matches == 2);
  CHECK_THROWS_WITH_AS(type_weights(model, "attention"),
                       doctest::Contains("matches no layer: the model has conv2d, relu, "),
                       ConfigError);
}
