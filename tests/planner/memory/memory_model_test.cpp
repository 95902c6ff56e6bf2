#include "smp/planner/memory/memory_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "cost/activation_walk.h"
#include "plan/plan_samples.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/units.h"
#include "smp/planner/cost/layer_bytes.h"

using namespace smp;
using namespace smp::cost;
using namespace smp::layout;
using namespace smp::memory;
using namespace smp::mesh;
using namespace smp::model;
using namespace smp::schedule;
using namespace smp::text;

static_assert(kAmpAdam.total() == 20);
static_assert(kBf16.total() == 18);
static_assert(kFp32.total() == 16);
static_assert(kFp64.total() == 32);

namespace {

int64_t term(const RankPrediction& rank, const std::string& name) {
  for (const MemoryTerm& found : rank.terms) {
    if (found.name == name) return found.bytes;
  }
  return 0;
}

int64_t sum(const RankPrediction& rank) {
  int64_t total = 0;
  for (const MemoryTerm& found : rank.terms) total += found.bytes;
  return total;
}

// Llama 2 7B on 8 accelerators, the data-parallel degree cut in z shards.
Plan llama_on_accelerators(Sharding sharding, int64_t z) {
  Plan plan =
      sample_plan(llama2_7b(), {.replica = 8, .microbatches = 1, .precision = Precision::kBf16});
  plan.job.cluster.device = DeviceKind::kCuda;
  plan.job.training.sequence_length = 4096;
  plan.job.parallel.sharded_data_parallel_degree = z;
  plan.job.parallel.sharding = sharding;
  plan.job.parallel.activation_checkpointing = true;
  plan.job.parallel.recompute = Recompute::kFull;
  plan.degrees = rules::degrees_of(plan.job);
  return plan;
}

int64_t states(const RankPrediction& rank) {
  return term(rank, "weights") + term(rank, "gradients") + term(rank, "fp32 master weights") +
         term(rank, "Adam momentum") + term(rank, "Adam variance");
}

}  // namespace

TEST_CASE("10 B parameters in fp16 with Adam, unsharded, are planned at 200 GB of state") {
  ModelSpec model = gpt2_sized(48, 4096, 32);
  model.ffn_hidden_size = 16700;  // 10.0 B in all
  Plan plan = sample_plan(model, {.microbatches = 1, .precision = Precision::kFp16});
  plan.job.cluster.device = DeviceKind::kCuda;
  const RankPrediction rank = predict_memory(plan, 0, 0);
  const int64_t parameters = parameter_count(model);
  CHECK(parameters / 1e9 == doctest::Approx(10).epsilon(0.001));
  CHECK(term(rank, "weights") == 2 * parameters);
  CHECK(term(rank, "gradients") == 2 * parameters);
  CHECK(term(rank, "fp32 gradient copy") == 4 * parameters);
  CHECK(term(rank, "fp32 master weights") == 4 * parameters);
  CHECK(term(rank, "Adam momentum") + term(rank, "Adam variance") == 8 * parameters);
  CHECK((states(rank) + term(rank, "fp32 gradient copy")) / 1e9 ==
        doctest::Approx(200).epsilon(0.001));
}

TEST_CASE("embedding, layers, logits and loss are terms of their own, each bytes x microbatches") {
  const auto formula = [](const RankPrediction& rank, const std::string& name) {
    for (const MemoryTerm& found : rank.terms) {
      if (found.name == name) return found.formula;
    }
    return std::string();
  };
  const Plan plan = sample_plan(small_gpt2(), {.pipeline = 2, .microbatches = 6});
  const RankPrediction first = predict_memory(plan, 0, 0);
  const RankPrediction last = predict_memory(plan, 1, 0);
  const int64_t x = 4 * 2 * 16 * plan.job.model.hidden_size;  // fp32 [2, 16, hidden]
  CHECK(term(first, "embedding") == 2 * x);
  CHECK(formula(first, "embedding") == with_commas(x) + " B x 2 microbatches live");
  CHECK(formula(first, "activations kept").ends_with(" layers x 2 microbatches live"));
  CHECK(term(first, "logits and loss") == 0);
  CHECK(term(last, "embedding") == 0);
  CHECK(term(last, "logits and loss") >= 4 * 2 * 16 * plan.job.model.vocab_size);
  CHECK(formula(last, "logits and loss").ends_with(" B x 1 microbatch live"));
  CHECK(formula(last, "inside the running layer").find(" B x 1 microbatch in ") !=
        std::string::npos);
}

TEST_CASE("the terms of a rank sum to its peak, and model states are the layout's, to the byte") {
  for (const Precision precision : {Precision::kFp32, Precision::kFp64}) {
    for (const SampleLayout& layout :
         {SampleLayout{}, SampleLayout{.tensor = 4}, SampleLayout{.pipeline = 3},
          SampleLayout{.pipeline = 2, .tensor = 2, .shard = 2, .replica = 2}}) {
      SampleLayout sized = layout;
      sized.precision = precision;
      const Plan plan = sample_plan(small_gpt2(), sized);
      const BytesPerParameter bytes = bytes_per_parameter(plan.job);
      const std::vector<RankPrediction> ranks = predict_memory(plan);
      REQUIRE(ranks.size() == static_cast<size_t>(layout.pipeline * layout.tensor));
      const Mesh mesh(plan.degrees, "cluster");
      for (const RankPrediction& rank : ranks) {
        const RankLayout held =
            rank_layout(plan, mesh.rank_of({.pipeline = rank.stage, .tensor = rank.tensor}));
        CHECK(sum(rank) == rank.peak_bytes);
        CHECK(term(rank, "weights") == bytes.weight * held.elements);
        CHECK(term(rank, "gradients") == bytes.gradient * held.elements);
        CHECK(term(rank, "Adam momentum") == bytes.momentum * held.optimizer_elements);
        CHECK(term(rank, "Adam variance") == bytes.variance * held.optimizer_elements);
        const int64_t copy = held.tied_copy ? held.tied_copy->box.size() : 0;
        CHECK(term(rank, "tied embedding copy") == bytes.weight * copy);
      }
    }
  }
}

TEST_CASE("each stage of ZeRO shards one more state") {
  const int64_t parameters = 6'738'415'616;
  const auto per_parameter = [&](Sharding sharding, int64_t z) {
    const RankPrediction rank = predict_memory(llama_on_accelerators(sharding, z), 0, 0);
    return static_cast<double>(states(rank)) / static_cast<double>(parameters);
  };
  CHECK(per_parameter(Sharding::kNone, 1) == doctest::Approx(18));
  CHECK(per_parameter(Sharding::kOptimizerState, 8) == doctest::Approx(6 + 12 / 8.0));
  CHECK(per_parameter(Sharding::kGradients, 8) == doctest::Approx(2 + 16 / 8.0));
  CHECK(per_parameter(Sharding::kParameters, 8) == doctest::Approx(18 / 8.0));
  CHECK(per_parameter(Sharding::kParameters, 4) == doctest::Approx(18 / 4.0));
}

TEST_CASE("sharded parameters need the largest layer and the next, and one layer's gradients") {
  const RankPrediction rank = predict_memory(llama_on_accelerators(Sharding::kParameters, 8), 0, 0);
  const int64_t block = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096;
  CHECK(term(rank, "gathered weights") == 2 * 2 * block);
  CHECK(term(rank, "gradients before their reduction") == 4 * block);
}

TEST_CASE("offloading leaves a window of three layers on the accelerator, the rest on the host") {
  Plan plan = llama_on_accelerators(Sharding::kParameters, 8);
  const RankPrediction kept = predict_memory(plan, 0, 0);
  plan.job.parallel.offload_activations = true;
  const RankPrediction rank = predict_memory(plan, 0, 0);
  const int64_t boundary = 2 * 2 * 4096 * int64_t{4096};  // micro batch 2, bf16
  CHECK(term(kept, "checkpoints") == 32 * boundary);
  CHECK(term(rank, "checkpoints") == 0);
  CHECK(term(rank, "offload window") == 3 * boundary);
  CHECK(rank.host_bytes - kept.host_bytes == 32 * boundary);
}

TEST_CASE("on accelerators each term says what it rests on") {
  const RankPrediction rank = predict_memory(llama_on_accelerators(Sharding::kGradients, 8), 0, 0);
  CHECK(sum(rank) == rank.peak_bytes);
  const auto found = [&](const std::string& name) {
    const auto at = std::find_if(rank.terms.begin(), rank.terms.end(),
                                 [&](const MemoryTerm& term) { return term.name == name; });
    return at == rank.terms.end() ? MemoryTerm{} : *at;
  };
  CHECK(found("fp32 master weights").formula == "4 B x 6,738,415,616 / 8");
  CHECK(found("fp32 master weights").source == "derived: ZeRO, Rajbhandari et al. 2020");
  CHECK(found("checkpoints").formula == "67,108,864 B x 32 layers x 1 microbatch live");
  CHECK(found("device context").source == "measured: nvidia-smi at start, stas00/ml-engineering");
  CHECK(found("fragmentation").source == "assumed: reserved over allocated, by framework");
}

TEST_CASE("our engine's shared segments are those of its groups") {
  const Plan plan = sample_plan(small_gpt2(), {.tensor = 2, .shard = 2});
  const RankPrediction rank = predict_memory(plan, 0, 0);
  CHECK(term(rank, "shared segments") == segment_bytes(4) + segment_bytes(2) + segment_bytes(2));
}

TEST_CASE("1F1B holds p - i microbatches on stage i, GPipe all of them") {
  SampleLayout layout{.pipeline = 2, .microbatches = 6};
  const RankPrediction early = predict_memory(sample_plan(small_gpt2(), layout), 0, 0);
  layout.pipeline_kind = PipelineKind::kSimple;
  const RankPrediction all = predict_memory(sample_plan(small_gpt2(), layout), 0, 0);
  // Up to outputs that are still being sent.
  CHECK(static_cast<double>(term(all, "activations kept")) ==
        doctest::Approx(3.0 * static_cast<double>(term(early, "activations kept"))).epsilon(0.02));
}

TEST_CASE("a walk adds and releases what each action does") {
  // Stage 1 of 2, layers 2 and 3 (the head), one microbatch.
  WalkedStage stage;
  stage.layers.resize(4);
  stage.layers[1].handed_bytes = 14;  // 5 of integers
  stage.layers[1].handed_gradient_bytes = 9;
  stage.layers[2] = {.memory = {.output_bytes = 10,
                                .saved_bytes = 50,
                                .forward_peak_bytes = 60,
                                .input_gradient_bytes = 9,
                                .backward_peak_bytes = 20},
                     .opens_chunk = true,
                     .data_bytes = 3,
                     .handed_bytes = 10,
                     .handed_gradient_bytes = 10};
  stage.layers[3] = {.kind = RunningLayer::kHead,
                     .memory = {.output_bytes = 1,
                                .saved_bytes = 30,
                                .forward_peak_bytes = 35,
                                .input_gradient_bytes = 10,
                                .backward_peak_bytes = 12},
                     .closes_chunk = true};
  stage.chunks = {{2, 3}};
  const auto action = [](ActionKind kind, Payload payload, int32_t layer) {
    return Action{.kind = kind, .payload = payload, .microbatch = 0, .layer = layer, .peer = 0};
  };
  const std::vector<Action> actions = {action(ActionKind::kReceive, Payload::kActivation, -1),
                                       action(ActionKind::kReceiveWait, Payload::kActivation, -1),
                                       action(ActionKind::kForward, Payload::kNone, 2),
                                       action(ActionKind::kForward, Payload::kNone, 3),
                                       action(ActionKind::kBackward, Payload::kNone, 3),
                                       action(ActionKind::kBackward, Payload::kNone, 2),
                                       action(ActionKind::kSend, Payload::kGradient, -1),
                                       action(ActionKind::kSendWait, Payload::kGradient, -1),
                                       action(ActionKind::kStep, Payload::kNone, -1)};
  const ActivationPeaks peaks = walk_activations(actions, stage);
  CHECK(peaks.forward.total() == 14 + 3 + 50 + 35);       // the head, on top of layer 2
  CHECK(peaks.backward.total() == 14 + 3 + 80 + 12 + 1);  // the head's backward
  CHECK(peaks.step.total() == 0);
}

TEST_CASE("a call with deferred weight gradients keeps its tensors until they are computed") {
  WalkedStage stage;
  stage.layers.resize(3);
  stage.layers[1] = {.memory = {.output_bytes = 1, .saved_bytes = 50, .forward_peak_bytes = 50},
                     .opens_chunk = true,
                     .closes_chunk = true};
  const auto walked = [&](bool defers) {
    stage.defers_weight_gradients = defers;
    std::vector<Action> actions;
    for (int32_t microbatch : {0, 1}) {
      actions.push_back({.kind = ActionKind::kForward, .microbatch = microbatch, .layer = 1});
      actions.push_back({.kind = ActionKind::kBackward, .microbatch = microbatch, .layer = 1});
    }
    return walk_activations(actions, stage).forward.blocks.bytes;
  };
  CHECK(walked(false) == 0);
  CHECK(walked(true) == 50);
}
