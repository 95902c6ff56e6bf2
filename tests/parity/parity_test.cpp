#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "parity/comparison.h"
#include "parity/layouts.h"
#include "plan/list_samples.h"
#include "scratch_folder.h"
#include "short_runs.h"

// Each layout trains the same model on the same batches as one rank does, with its ranks as
// threads, and must come to the same losses and weights; what it counted of memory and traffic must
// be what the plan predicts.
namespace smp::parity {
TEST_CASE("GPT-2, fp64, 20 steps: every layout trains as one rank does") {
  compare(gpt2_model(), Precision::kFp64, layouts(), 20);
}
TEST_CASE("GPT-2, fp32, 5 steps: every layout trains as one rank does") {
  compare(gpt2_model(), Precision::kFp32, layouts(), 5);
}
TEST_CASE("Llama, fp64, 10 steps: every layout trains as one rank does") {
  compare(llama_model(), Precision::kFp64, layouts(), 10);
}
TEST_CASE("Llama, fp32, 5 steps: every layout trains as one rank does") {
  compare(llama_model(), Precision::kFp32, layouts(), 5);
}

TEST_CASE("GPT-2, fp64, 5 steps, no clipping: updates of reduced buckets change nothing") {
  compare(gpt2_model(), Precision::kFp64, unclipped(), 5);
}
TEST_CASE("GPT-2, fp64, 5 steps: every pipeline schedule trains as one rank does") {
  compare(gpt2_model(), Precision::kFp64, schedules(), 5);
}
TEST_CASE("Llama, fp32, 5 steps: every pipeline schedule trains as one rank does") {
  compare(llama_model(), Precision::kFp32, schedules(), 5);
}

TEST_CASE("fp64, 5 steps: ranks that split sequences train as one rank does") {
  for (const ModelSpec& model : {gpt2_model(), llama_model(), llama_tied_model(), phi_model()}) {
    MESSAGE(model.name);
    compare(model, Precision::kFp64, split_sequences(), 5);
  }
}

TEST_CASE("fp64, 5 steps: ranks that share some kinds of matrices train as one rank does") {
  for (const ModelSpec& model : {gpt2_model(), llama_model(), t5_model()}) {
    compare(model, Precision::kFp64, shared_kinds(), 5);
  }
}

TEST_CASE("fp64, 5 steps: without fusions ranks train as one rank does with them") {
  for (const ModelSpec& model : {gpt2_model(), llama_model()}) {
    compare(model, Precision::kFp64, unfused(), 5);
  }
}

TEST_CASE("fp64, 5 steps: packed layers and small tensors that stay gathered change nothing") {
  for (const ModelSpec& model :
       {gpt2_model(), llama_model(), gpt2_untied_model(), t5_model(), image_model()}) {
    compare(model, Precision::kFp64, small_layers(), 5);
  }
}

// The other halves of tied and untied, and a second size for the predictions of memory.
TEST_CASE("GPT-2, untied, wider, fp64, 5 steps: every layout trains as one rank does") {
  compare(wider(gpt2_untied_model()), Precision::kFp64, layouts(), 5);
}
TEST_CASE("Llama, tied, wider, fp32, 5 steps: every layout trains as one rank does") {
  compare(wider(llama_tied_model()), Precision::kFp32, layouts(), 5);
}

// Blocks of neither family.
TEST_CASE("Qwen 2, fp64, 5 steps: replicated KV heads with biases train as one rank does") {
  compare(qwen2_model(), Precision::kFp64,
          {{"t4", {.tensor = 4}},
           {"p3", {.pipeline = 3}},
           {"t4d2 ZeRO-3",
            {.tensor = 4, .shard = 2},
            PipelineKind::kInterleaved,
            Sharding::kParameters}},
          5);
}
TEST_CASE("Qwen 3, fp64, 5 steps: every layout trains as one rank does") {
  compare(qwen3_model(), Precision::kFp64, layouts(), 5);
}
TEST_CASE("a plain Transformer, fp64, 5 steps: cut into stages and sharded it trains as one rank") {
  ModelSpec model = gpt2_untied_model();
  model.name = "transformer-lm";
  model.mlp = MlpKind::kRelu;
  const auto one_f_one_b = PipelineKind::kInterleaved;
  compare(model, Precision::kFp64,
          {{"p3", {.pipeline = 3}},
           {"d4 ZeRO-3", {.shard = 4}, one_f_one_b, Sharding::kParameters},
           {"t2p2d2 ZeRO-2",
            {.pipeline = 2, .tensor = 2, .shard = 2},
            one_f_one_b,
            Sharding::kGradients}},
          5);
}
TEST_CASE("Phi, fp64, 5 steps: every layout trains as one rank does") {
  compare(phi_model(), Precision::kFp64, layouts(), 5);
}

TEST_CASE("Mistral, fp64, 5 steps: with windows every layout trains as one rank does") {
  ModelSpec mistral = llama_model();
  mistral.name = "mistral";
  mistral.sliding_window = 5;
  compare(mistral, Precision::kFp64, layouts(), 5);
}

// Experts and latent attention: every rank routes each token alike, to the bit of its scores.
TEST_CASE("experts, fp64, 3 steps: every layout trains as one rank does") {
  for (const ModelSpec& model :
       {mixtral_model(), deepseek_model(), olmoe_model(), gpt_oss_model()}) {
    MESSAGE(model.name);
    compare(model, Precision::kFp64, layouts(), 3);
  }
}
TEST_CASE("experts, fp64, 2 steps: schedules, split sequences and small buckets change nothing") {
  compare(mixtral_model(), Precision::kFp64, schedules(), 2);
  compare(deepseek_model(), Precision::kFp64, schedules(), 2);
  compare(olmoe_model(), Precision::kFp64, schedules(), 2);
  compare(gpt_oss_model(), Precision::kFp64, schedules(), 2);
  for (const ModelSpec& model :
       {mixtral_model(), deepseek_model(), deepseek_lite_model(), olmoe_model(), gpt_oss_model()}) {
    compare(model, Precision::kFp64, split_sequences(), 2);
    compare(model, Precision::kFp64, small_layers(), 2);
    compare(model, Precision::kFp64, shared_kinds(), 2);
  }
}

// What an expert drops, and what balances a microbatch, depends on the microbatch's size alone.
TEST_CASE("full experts and losses of microbatches: layouts with equal microbatches train alike") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  for (ModelSpec model : {mixtral_model(), deepseek_model()}) {
    model.expert_capacity_factor = 1.1;
    model.router_balance_over = BalanceOver::kMicrobatch;
    LayoutCase one{"one rank", {}};
    one.microbatches = 6;
    const auto plan_for = [&](const LayoutCase& layout) {
      return plan_of(model, layout, Precision::kFp64, folder / "text.txt");
    };
    const Run reference = run(plan_for(one), 5);
    int64_t dropped = 0;
    for (const record::RouterMetrics& router : reference.result.routers) dropped += router.dropped;
    CHECK(dropped > 0);
    LayoutCase stages{"p2t2", {.pipeline = 2, .tensor = 2}};
    stages.microbatches = 6;
    LayoutCase recomputed = stages;
    recomputed.recompute = Recompute::kFull;
    LayoutCase sharded{"t2d3 ZeRO-3", {.tensor = 2, .shard = 3}};
    sharded.sharding = Sharding::kParameters;
    sharded.microbatches = 2;
    for (const LayoutCase& layout : {stages, recomputed, sharded}) {
      INFO(model.name << " " << layout.name);
      const Plan plan = plan_for(layout);
      const Run one_run = run(plan, 5);
      check_parity(one_run, reference, tolerance::kParityF64);
      check_memory(plan, one_run.result);
      check_wire(plan, one_run.result);
      REQUIRE(one_run.result.routers.size() == reference.result.routers.size());
      for (size_t i = 0; i < one_run.result.routers.size(); ++i) {
        CHECK(one_run.result.routers[i].tokens == reference.result.routers[i].tokens);
        CHECK(one_run.result.routers[i].dropped == reference.result.routers[i].dropped);
      }
    }
  }
}

// Against one rank whose one microbatch is the global batch.
TEST_CASE("a balancing loss over the global batch: every layout trains as one microbatch does") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  for (ModelSpec model : {mixtral_model(), deepseek_model()}) {
    const auto plan_for = [&](const LayoutCase& layout) {
      return plan_of(model, layout, Precision::kFp64, folder / "text.txt");
    };
    model.router_balance_loss = 0.5;  // so that it shows
    model.router_balance_over = BalanceOver::kMicrobatch;
    LayoutCase one{"one rank", {}};
    one.microbatches = 1;
    const Run reference = run(plan_for(one), 5);
    LayoutCase apart = one;
    apart.microbatches = 6;
    const double other = run(plan_for(apart), 5).result.losses.back();
    CHECK(std::abs(other - reference.result.losses.back()) > 1e-9);

    model.router_balance_over = BalanceOver::kBatch;
    const auto simple = PipelineKind::kSimple;
    std::vector<LayoutCase> layouts = {{"m6", {}, simple},
                                       {"p2t2", {.pipeline = 2, .tensor = 2}, simple},
                                       {"p3 recomputed", {.pipeline = 3}, simple},
                                       {"t2d3 ZeRO-3", {.tensor = 2, .shard = 3}, simple},
                                       {"d3x2 ZeRO-1", {.shard = 3, .replica = 2}},
                                       {"p2d3 ZeRO-2", {.pipeline = 2, .shard = 3}, simple}};
    for (LayoutCase& layout : layouts) {
      layout.microbatches = 6 / (layout.degrees.shard * layout.degrees.replica);
    }
    layouts[2].recompute = Recompute::kFull;
    layouts[2].offload_activations = true;
    layouts[3].sharding = Sharding::kParameters;
    layouts[5].sharding = Sharding::kGradients;
    for (const LayoutCase& layout : layouts) {
      INFO(model.name << " " << layout.name);
      const Plan plan = plan_for(layout);
      const Run one_run = run(plan, 5);
      check_parity(one_run, reference, tolerance::kParityF64);
      check_memory(plan, one_run.result);
      check_wire(plan, one_run.result);
    }
  }
}

// An encoder and a decoder.
TEST_CASE("T5, fp64, 5 steps: every layout trains as one rank does") {
  compare(t5_model(), Precision::kFp64, stacks(), 5);
}
TEST_CASE("T5 with dropout, fp64, 5 steps: every layout drops what one rank drops") {
  ModelSpec model = t5_model();
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.1;
  LayoutCase again{"p2 recompute", {.pipeline = 2}};
  again.recompute = Recompute::kFull;
  compare(
      model, Precision::kFp64,
      {{"p3", {.pipeline = 3}}, {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}}, again},
      5);
}
TEST_CASE("T5, fp64, 5 steps: ranks that split sequences train as one rank does") {
  ModelSpec model = t5_model();
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.1;
  for (const ModelSpec& one : {model, t5_gated_model()}) {
    compare(one, Precision::kFp64, split_sequences(), 5);
  }
}
TEST_CASE("T5 1.1, fp32, 5 steps: every layout trains as one rank does") {
  compare(t5_gated_model(), Precision::kFp32, stacks(), 5);
}

// Convolutions and images.
TEST_CASE("a list of layers, fp64, 5 steps: every layout trains as one rank does") {
  compare(image_model(), Precision::kFp64, layouts(), 5);
}
// Of this one tensor ranks share everything from the first channels to the logits.
TEST_CASE(
    "a list of layers cut to its logits, fp64, 5 steps: every layout trains as one rank does") {
  LayoutCase again{"t3p2 recomputed, offloaded", {.pipeline = 2, .tensor = 3}};
  again.recompute = Recompute::kFull;
  again.recompute_layers = 1;
  again.offload_activations = true;
  compare(cut_list(), Precision::kFp64,
          {{"t2", {.tensor = 2}},
           {"t4d2 ZeRO-3",
            {.tensor = 4, .shard = 2},
            PipelineKind::kInterleaved,
            Sharding::kParameters},
           {"t2p2 zero bubble", {.pipeline = 2, .tensor = 2}, PipelineKind::kZbH1},
           again},
          5);
}
TEST_CASE("a list of layers, fp32, 5 steps: every layout trains as one rank does") {
  compare(image_model(), Precision::kFp32, layouts(), 5);
}
TEST_CASE("a list of layers, fp64, 5 steps: every pipeline schedule trains as one rank does") {
  compare(image_model(), Precision::kFp64, schedules(), 5);
}
TEST_CASE("a list of layers, fp64, 5 steps: recomputed and offloaded layers change nothing") {
  LayoutCase recomputed{"p2 recomputed", {.pipeline = 2}};
  recomputed.recompute = Recompute::kFull;
  LayoutCase offloaded{"p2d2 ZeRO-3 offloaded", {.pipeline = 2, .shard = 2}};
  offloaded.sharding = Sharding::kParameters;
  offloaded.offload_activations = true;
  LayoutCase both = recomputed;
  both.name = "d2 both";
  both.degrees = {.replica = 2};
  both.offload_activations = true;
  compare(image_model(), Precision::kFp64, {recomputed, offloaded, both}, 5);
}

// AlexNet's layers on real images: 12 a step, of 192 that scikit-learn ships; 48 are held out.
void check_digits(Precision precision) {
  const JobSpec job = test::digits_job();
  constexpr int64_t kSteps = 200;
  LayoutCase sharded{"d2 ZeRO-3", {.shard = 2}};
  sharded.sharding = Sharding::kParameters;
  for (const LayoutCase& layout : {LayoutCase{"p2", {.pipeline = 2}}, sharded}) {
    INFO(layout.name);
    Plan plan =
        plan_of(job.model, layout, precision, SMP_SOURCE_DIR "/tests/golden/digits/digits-240.csv");
    plan.job.training.images = job.training.images;
    plan.job.training.steps = kSteps;
    plan.job.training.evaluation = {.every_steps = kSteps, .samples = 48};
    const Run one = run(plan, kSteps);
    const double first = one.result.losses.front(), last = *one.result.run.evaluation_loss;
    MESSAGE(fmt::format("{}: loss {:.3f}, then {:.3f} of held-out images, {:.0f} % right",
                        layout.name, first, last, 100 * *one.result.run.accuracy));
    CHECK(last < first / 2);
    CHECK(*one.result.run.accuracy > 0.5);
    check_memory(plan, one.result);
  }
}

TEST_CASE("digits: the loss falls in a pipeline and in a sharded layout") {
  check_digits(Precision::kFp32);
}
TEST_CASE("digits, bf16: the loss falls in a pipeline and in a sharded layout") {
  check_digits(Precision::kBf16);
}

}  // namespace smp::parity
