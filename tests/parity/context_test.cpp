#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "parity/engine_run.h"
#include "smp/plan/data/data_files.h"
#include "smp/planner/memory/memory_model.h"

// Ranks that share sequences, against one rank: what attention may be made of, in rings, exchanges
// and both. The covering set has context beside all other features.
namespace smp::parity {
namespace {

constexpr auto kOneForwardOneBackward = PipelineKind::kInterleaved;

std::vector<LayoutCase> shared_sequences() {
  std::vector<LayoutCase> layouts{
      {"ring of 2", {.context = 2}},
      {"ring of 4", {.context = 4}, kOneForwardOneBackward, Sharding::kNone},
      {"exchange of 2", {.context = 2, .exchange = 2}},
      {"ring of 2 x exchange of 2",
       {.context = 4, .exchange = 2},
       kOneForwardOneBackward,
       Sharding::kParameters},
      {"d2, exchange of 2, ZeRO-2",
       {.shard = 2, .context = 2, .exchange = 2},
       kOneForwardOneBackward,
       Sharding::kGradients},
      {"p2, ring of 4, zb_h1", {.pipeline = 2, .context = 4}, PipelineKind::kZbH1}};
  LayoutCase again{"t2, ring of 2, split sequences, recomputed", {.tensor = 2, .context = 2}};
  again.sequence_parallel = true;
  again.recompute = Recompute::kFull;
  layouts.push_back(again);
  LayoutCase offloaded{"ring of 2, offloaded, in the V of zb_v",
                       {.pipeline = 2, .context = 2},
                       PipelineKind::kZbV,
                       Sharding::kOptimizerState,
                       2};
  offloaded.offload_activations = true;
  layouts.push_back(offloaded);
  return layouts;
}

ModelSpec with_window(ModelSpec model, int64_t window) {
  model.name += fmt::format(", window {}", window);
  model.sliding_window = window;
  return model;
}

ModelSpec scaled(RopeScaling scaling) {
  ModelSpec model = llama_model();
  model.name += fmt::format(", rope scaling {}", static_cast<int>(scaling));
  model.rope_scaling = scaling;
  model.rope_scaling_factor = 4;
  model.rope_original_positions = 16;  // sequences have 32 tokens
  for (int64_t pair = 0; pair < rotary_dim_of(model) / 2; ++pair) {
    model.rope_short_factors.push_back(1 + 0.25 * static_cast<double>(pair));
    model.rope_long_factors.push_back(1.5 + static_cast<double>(pair));
  }
  return model;
}

engine::ReadSamples plain_samples() {
  return [](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
    for (int64_t i = 0; i < count * 32; ++i) {
      const int64_t sample = first + i / 32, place = i % 32;
      const auto token = [&](int64_t at) {
        return (at * at * 3 + 7 * sample + 11 * step + at) % 97;
      };
      if (int64_t* tokens = out.integers(model::BatchField::kTokens)) tokens[i] = token(place);
      if (int64_t* targets = out.integers(model::BatchField::kTargets)) {
        targets[i] = token(place + 1);
      }
    }
  };
}

}  // namespace

TEST_CASE("fp64, 3 steps: windows that end within, at and beyond slices") {
  for (const int64_t window : {3, 8, 13, 31}) {
    compare(with_window(llama_model(), window), Precision::kFp64, shared_sequences(), 3);
  }
}

TEST_CASE("fp64, 3 steps: norms of heads, biases, learned positions, parallel branches") {
  for (const ModelSpec& model : {qwen3_model(), qwen2_model(), gpt2_model(), phi_model()}) {
    compare(model, Precision::kFp64, shared_sequences(), 3);
  }
}

TEST_CASE("fp64, 3 steps: sinks, latent attention, norms over all heads, and their routers") {
  for (const ModelSpec& model : {gpt_oss_model(), deepseek_model(), olmoe_model()}) {
    compare(model, Precision::kFp64, shared_sequences(), 3);
  }
}

TEST_CASE("fp64, 3 steps: dropout draws by the place in the sample") {
  ModelSpec model = gpt2_model();
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.3;
  compare(model, Precision::kFp64, shared_sequences(), 3);
}

TEST_CASE("fp64, 3 steps: scaled rotary frequencies, longrope among them") {
  for (const RopeScaling scaling :
       {RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn, RopeScaling::kLongRope}) {
    compare(scaled(scaling), Precision::kFp64, shared_sequences(), 3);
  }
}

// Its factors divide frequencies, as linear scaling does with one number; those for sequences
// longer than the original positions, or the others.
TEST_CASE("longrope with equal factors is linear scaling") {
  ModelSpec linear = llama_model();
  linear.rope_scaling = RopeScaling::kLinear;
  linear.rope_scaling_factor = 4;
  for (const bool is_longer : {false, true}) {
    ModelSpec longrope = llama_model();
    const auto pairs = static_cast<size_t>(rotary_dim_of(longrope) / 2);
    longrope.rope_scaling = RopeScaling::kLongRope;
    longrope.rope_original_positions = is_longer ? 31 : 32;
    longrope.rope_attention_factor = 1;
    longrope.rope_short_factors.assign(pairs, is_longer ? 9.0 : 4.0);
    longrope.rope_long_factors.assign(pairs, is_longer ? 4.0 : 9.0);
    const auto losses_of = [&](const ModelSpec& model) {
      return run_engine(plan_of(model, {"one rank", {}}, Precision::kFp64, ""), plain_samples(), 3)
          .result.losses;
    };
    CHECK(losses_of(longrope) == losses_of(linear));
  }
}

// A rank reads whole samples, and has a part of their tokens in everything else.
TEST_CASE("what a rank holds does not grow with sequences that as many more ranks share") {
  std::vector<int64_t> activations;
  for (const int64_t context : {1, 2, 4, 8}) {
    LayoutCase layout{fmt::format("ring of {}", context), {.context = context}};
    layout.sharding = Sharding::kNone;
    layout.microbatches = 1;
    Plan plan = plan_of(llama_model(), layout, Precision::kFp32, "");
    plan.job.model.max_positions = plan.job.training.sequence_length = 256 * context;
    plan.predictions.ranks = memory::predict_memory(plan);
    const RankPrediction prediction = memory::predict_memory(plan, 0, 0);
    int64_t bytes = 0;
    for (const MemoryTerm& term : prediction.terms) {
      if (term.category == MemoryCategory::kActivations) bytes += term.bytes;
    }
    activations.push_back(bytes);
  }
  for (const int64_t bytes : activations) {
    CHECK(static_cast<double>(bytes) ==
          doctest::Approx(static_cast<double>(activations.at(1))).epsilon(0.03));
  }
}

}  // namespace smp::parity
