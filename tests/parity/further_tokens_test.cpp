#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "parity/comparison.h"
#include "parity/layouts.h"

// Models that predict further tokens, against one rank. The covering set has DeepSeek-V3's one
// layer beside all other features.
namespace smp::parity {
namespace {

LayoutCase layout_of(const std::string& name, const mesh::Degrees& degrees,
                     Sharding sharding = Sharding::kNone,
                     PipelineKind pipeline = PipelineKind::kInterleaved) {
  return {name, degrees, pipeline, sharding};
}

std::vector<LayoutCase> tried_layouts() {
  std::vector<LayoutCase> layouts{
      layout_of("d2", {.replica = 2}),
      layout_of("z2, ZeRO-1", {.shard = 2}, Sharding::kOptimizerState),
      layout_of("z2, ZeRO-2", {.shard = 2}, Sharding::kGradients),
      layout_of("z2, ZeRO-3", {.shard = 2}, Sharding::kParameters),
      layout_of("t2", {.tensor = 2}),
      layout_of("p2", {.pipeline = 2}),
      layout_of("p2 x z2, ZeRO-3", {.pipeline = 2, .shard = 2}, Sharding::kParameters),
      layout_of("p2 x t2, zb_h1", {.pipeline = 2, .tensor = 2}, Sharding::kNone,
                PipelineKind::kZbH1),
      layout_of("ring of 2", {.context = 2}),
      layout_of("exchange of 2, ZeRO-2", {.shard = 2, .context = 2, .exchange = 2},
                Sharding::kGradients)};
  LayoutCase split =
      layout_of("t2 x p2, split sequences, recomputed", {.pipeline = 2, .tensor = 2});
  split.sequence_parallel = true;
  split.recompute = Recompute::kFull;
  layouts.push_back(split);
  LayoutCase grouped =
      layout_of("z2, ZeRO-3, checkpoints of 2 layers", {.shard = 2}, Sharding::kParameters);
  grouped.recompute = Recompute::kFull;
  grouped.strategy = "group_2";
  layouts.push_back(grouped);
  LayoutCase selective = layout_of("t2, selective, offloaded", {.tensor = 2});
  selective.recompute = Recompute::kSelective;
  selective.offload_activations = true;
  layouts.push_back(selective);
  LayoutCase in_v = layout_of("p2 x z2, ZeRO-3, in the V of zb_v", {.pipeline = 2, .shard = 2},
                              Sharding::kParameters, PipelineKind::kZbV);
  in_v.virtual_stages = 2;
  layouts.push_back(in_v);
  LayoutCase chunks = layout_of("p2, two chunks each, offloaded", {.pipeline = 2}, Sharding::kNone,
                                PipelineKind::kVirtual);
  chunks.virtual_stages = 2;
  chunks.offload_activations = true;
  chunks.microbatches = 4;  // in groups of p
  layouts.push_back(chunks);
  return layouts;
}

ModelSpec predicting(ModelSpec model, int64_t tokens) {
  model.num_mtp_layers = tokens;
  model.mtp_loss_factor = 0.5;
  return model;
}

}  // namespace

TEST_CASE("fp64, 3 steps: one further token, of experts") {
  compare(deepseek_v3_model(), Precision::kFp64, tried_layouts(), 3);
}

TEST_CASE("fp64, 3 steps: three further tokens, with embeddings tied and apart") {
  compare(predicting(llama_model(), 3), Precision::kFp64, tried_layouts(), 3);
  ModelSpec tied = predicting(llama_model(), 3);
  tied.tied_embeddings = true;
  compare(tied, Precision::kFp64, tried_layouts(), 3);
}

TEST_CASE("fp64, 3 steps: a further token behind layer norms and a head with a bias") {
  compare(predicting(phi_model(), 1), Precision::kFp64, tried_layouts(), 3);
}

}  // namespace smp::parity
