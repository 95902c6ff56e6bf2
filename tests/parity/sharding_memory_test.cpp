#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "parity/comparison.h"
#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/planner/memory/memory_model.h"

// What the one switch saves, on the model and ranks of PyTorch Lightning's announcement of sharded
// training (2020): a Transformer language model of 22 layers on 8 ranks, narrower here. It claims
// 55 % less peak memory than data parallelism.
namespace smp::parity {
namespace {

ModelSpec language_model() {
  ModelSpec model = gpt2_untied_model();
  model.name = "transformer-lm";
  model.num_layers = 22;
  model.hidden_size = 128;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  model.head_dim = 32;
  model.ffn_hidden_size = 512;
  return model;
}

// The fullest rank's counted bytes at its peak.
int64_t peak_of(const Run& run) {
  int64_t most = 0;
  for (const record::RankMeasurements& rank : run.result.ranks)
    most = std::max(most, rank.peak.bytes);
  return most;
}

}  // namespace

TEST_CASE("8 ranks, the one switch: peaks below data parallelism as published, and as planned") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  const auto train_with = [&](const mesh::Degrees& degrees, Sharding sharding) {
    LayoutCase layout{
        .name = "8 ranks", .degrees = degrees, .sharding = sharding, .microbatches = 1};
    Plan plan = plan_of(language_model(), layout, Precision::kFp32, folder / "text.txt");
    plan.job.training.sequence_length = 16;
    plan.job.training.micro_batch = 1;
    plan.job.training.global_batch = 8;
    plan.predictions.ranks = memory::predict_memory(plan);
    Run done = run(plan, 2);
    check_memory(plan, done.result);
    check_wire(plan, done.result);
    return done;
  };
  const Run whole = train_with({.replica = 8}, Sharding::kNone);
  const auto saved = [&](Sharding sharding) {
    const Run sharded = train_with({.shard = 8}, sharding);
    CHECK(sharded.result.losses.back() ==
          doctest::Approx(whole.result.losses.back()).epsilon(1e-4));
    const double share =
        1 - static_cast<double>(peak_of(sharded)) / static_cast<double>(peak_of(whole));
    MESSAGE(fmt::format("peak {} B instead of {} B: {:.1f} % less", peak_of(sharded),
                        peak_of(whole), 100 * share));
    return share;
  };
  CHECK(saved(Sharding::kOptimizerState) >= 0.38);
  CHECK(saved(Sharding::kGradients) >= 0.55);
  CHECK(saved(Sharding::kParameters) >= 0.70);
}

}  // namespace smp::parity
