#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "parity/engine_run.h"
#include "smp/plan/data/data_files.h"
#include "smp/planner/memory/memory_model.h"

// Ranks that share experts, against one rank. The covering set has experts over ranks beside all
// other features.
namespace smp::parity {
namespace {

constexpr auto kOneForwardOneBackward = PipelineKind::kInterleaved;

LayoutCase layout_of(const std::string& name, const mesh::Degrees& degrees,
                     Sharding sharding = Sharding::kNone,
                     PipelineKind pipeline = kOneForwardOneBackward) {
  return {name, degrees, pipeline, sharding};
}

// For models whose experts 2 ranks can share.
std::vector<LayoutCase> over_two_ranks() {
  std::vector<LayoutCase> layouts{
      layout_of("d2", {.replica = 2, .expert = 2}),
      layout_of("d4", {.replica = 4, .expert = 2}),
      layout_of("z2, ZeRO-1", {.shard = 2, .expert = 2}, Sharding::kOptimizerState),
      layout_of("z2, ZeRO-2", {.shard = 2, .expert = 2}, Sharding::kGradients),
      layout_of("z2, ZeRO-3", {.shard = 2, .expert = 2}, Sharding::kParameters),
      layout_of("z4, ZeRO-1", {.shard = 4, .expert = 2}, Sharding::kOptimizerState),
      layout_of("z4, ZeRO-2", {.shard = 4, .expert = 2}, Sharding::kGradients),
      layout_of("z4, ZeRO-3", {.shard = 4, .expert = 2}, Sharding::kParameters),
      layout_of("z2 x r2, ZeRO-2", {.shard = 2, .replica = 2, .expert = 2}, Sharding::kGradients),
      layout_of("t2", {.tensor = 2, .expert = 2}),
      layout_of("t2, z2, ZeRO-3", {.tensor = 2, .shard = 2, .expert = 2}, Sharding::kParameters),
      layout_of("ring of 2", {.context = 2, .expert = 2}),
      layout_of("exchange of 2, z2, ZeRO-2", {.shard = 2, .context = 2, .exchange = 2, .expert = 2},
                Sharding::kGradients),
      layout_of("p2, zb_h1", {.pipeline = 2, .replica = 2, .expert = 2}, Sharding::kNone,
                PipelineKind::kZbH1)};
  LayoutCase again =
      layout_of("t2 x d2, split sequences, recomputed", {.tensor = 2, .replica = 2, .expert = 2});
  again.sequence_parallel = true;
  again.recompute = Recompute::kFull;
  layouts.push_back(again);
  LayoutCase selective = layout_of("z2, ZeRO-3, selective, offloaded", {.shard = 2, .expert = 2},
                                   Sharding::kParameters);
  selective.recompute = Recompute::kSelective;
  selective.offload_optimizer = selective.offload_parameters = true;
  layouts.push_back(selective);
  LayoutCase in_v =
      layout_of("p2 x z2, offloaded, in the V of zb_v", {.pipeline = 2, .shard = 2, .expert = 2},
                Sharding::kOptimizerState, PipelineKind::kZbV);
  in_v.virtual_stages = 2;
  in_v.offload_activations = true;
  layouts.push_back(in_v);
  return layouts;
}

// Without clipping each bucket is updated, and its experts with it, as soon as it is reduced.
std::vector<LayoutCase> updated_early() {
  std::vector<LayoutCase> layouts{
      layout_of("z4, ZeRO-1", {.shard = 4, .expert = 2}, Sharding::kOptimizerState),
      layout_of("z2 x r2, ZeRO-3", {.shard = 2, .replica = 2, .expert = 2}, Sharding::kParameters)};
  for (LayoutCase& layout : layouts) layout.gradient_clipping = 0;
  return layouts;
}

std::vector<LayoutCase> over_four_ranks() {
  return {layout_of("d4, by 4", {.replica = 4, .expert = 4}),
          layout_of("z4, ZeRO-3, by 4", {.shard = 4, .expert = 4}, Sharding::kParameters),
          layout_of("t2 x z2, ZeRO-2, by 4", {.tensor = 2, .shard = 2, .expert = 4},
                    Sharding::kGradients),
          layout_of("t2 x ring of 2, by 4", {.tensor = 2, .context = 2, .expert = 4})};
}

}  // namespace

TEST_CASE("fp64, 3 steps: experts over 2 ranks") {
  for (const ModelSpec& model : {gpt_oss_model(), deepseek_model(), olmoe_model()}) {
    compare(model, Precision::kFp64, over_two_ranks(), 3);
  }
  compare(deepseek_model(), Precision::kFp64, updated_early(), 3);
}

TEST_CASE("fp64, 3 steps: experts over 4 ranks, one or two each") {
  for (const ModelSpec& model : {gpt_oss_model(), olmoe_model()}) {
    compare(model, Precision::kFp64, over_four_ranks(), 3);
  }
}

// A small tensor of an expert is on its ranks alone, and is not gathered with those of all ranks.
TEST_CASE("fp64, 3 steps: small biases of experts over ranks do not persist") {
  std::vector<LayoutCase> layouts{
      layout_of("z2, ZeRO-3", {.shard = 2, .expert = 2}, Sharding::kParameters),
      layout_of("z4, ZeRO-3", {.shard = 4, .expert = 2}, Sharding::kParameters)};
  for (LayoutCase& layout : layouts) layout.param_persistence_threshold = 500;
  compare(gpt_oss_model(), Precision::kFp64, layouts, 3);
}

// A full expert drops tokens of a microbatch wherever it lies.
TEST_CASE("fp64, 3 steps: full experts over ranks") {
  ModelSpec model = olmoe_model();
  model.expert_capacity_factor = 0.8;
  std::vector<LayoutCase> layouts{layout_of("t2", {.tensor = 2, .expert = 2}),
                                  layout_of("t2 x p2", {.pipeline = 2, .tensor = 2, .expert = 2})};
  compare(model, Precision::kFp64, layouts, 3);
}

// All tokens are the same one, and so choose the same expert: the fullest of 8 has 8 times the
// mean.
TEST_CASE("an imbalance of 8:1 trains the same and stays within the predicted memory") {
  ModelSpec model = olmoe_model();
  model.experts_per_token = 1;
  const engine::ReadSamples samples = [](int64_t step, int64_t first, int64_t count,
                                         const engine::SampleBuffers& out) {
    for (int64_t i = 0; i < count * 32; ++i) {
      if (int64_t* tokens = out.integers(model::BatchField::kTokens)) tokens[i] = 5;
      if (int64_t* targets = out.integers(model::BatchField::kTargets)) {
        targets[i] = (7 * (first + i / 32) + 3 * (i % 32) + step) % 97;
      }
    }
  };
  const Run reference =
      run_engine(plan_of(model, {"one rank", {}}, Precision::kFp64, ""), samples, 3);
  for (const LayoutCase& layout :
       {layout_of("d4", {.replica = 4, .expert = 4}),
        layout_of("z4, ZeRO-3", {.shard = 4, .expert = 2}, Sharding::kParameters),
        layout_of("t2", {.tensor = 2, .expert = 2})}) {
    INFO(layout.name);
    const Plan plan = plan_of(model, layout, Precision::kFp64, "");
    const Run shared = run_engine(plan, samples, 3);
    const EngineDifference worst = engine_difference(shared, reference);
    CHECK(worst.loss <= tolerance::kParityF64.loss);
    CHECK(worst.grad_norm <= tolerance::kParityF64.grad_norm);
    CHECK(worst.weight <= tolerance::kParityF64.weight);
    check_memory(plan, shared.result);
    check_wire(plan, shared.result);
  }
}

}  // namespace smp::parity
