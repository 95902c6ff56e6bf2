#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <mutex>

#include "feed/data_source.h"
#include "parity/comparison.h"
#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/runtime/engine/engine.h"

// What must not change a bit of the numbers: computing again, offloading, cutting a model into
// stages under any schedule; and what the first two save.
namespace smp::parity {
namespace {

constexpr int64_t kSteps = 4;

LayoutCase with(const std::string& name, LayoutCase layout, Recompute recompute,
                int64_t recompute_layers, bool offload) {
  layout.name = name;
  layout.recompute = recompute;
  layout.recompute_layers = recompute_layers;
  layout.offload_activations = offload;
  return layout;
}

// The largest of the ranks.
int64_t peak_bytes(const training::RunResult& result) {
  int64_t most = 0;
  for (const record::RankMeasurements& rank : result.ranks) most = std::max(most, rank.peak.bytes);
  return most;
}
int64_t predicted_bytes(const Plan& plan) {
  int64_t most = 0;
  for (const RankPrediction& rank : memory::predict_memory(plan))
    most = std::max(most, rank.peak_bytes);
  return most;
}

void check_equal(const Run& run, const Run& reference) {
  CHECK(run.result.losses == reference.result.losses);
  CHECK(run.weights == reference.weights);
}

}  // namespace

TEST_CASE("recompute and offload change no bit, and save what the plan says") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  const LayoutCase one{"one rank", {}};
  LayoutCase deep{"p2 interleaved", {.pipeline = 2}};
  deep.microbatches = 6;
  LayoutCase zero_bubble = deep;
  zero_bubble.name = "p2 zb_v";
  zero_bubble.pipeline = PipelineKind::kZbV;
  zero_bubble.virtual_stages = 2;
  LayoutCase chunks = zero_bubble;
  chunks.name = "p2 virtual";
  chunks.pipeline = PipelineKind::kVirtual;
  ModelSpec model = wider(llama_model());
  model.hidden_dropout = model.attention_dropout = 0.1;  // masks are drawn again
  for (const LayoutCase& layout : {one, deep, zero_bubble, chunks}) {
    const auto plan_for = [&](const LayoutCase& which) {
      return plan_of(model, which, Precision::kFp32, folder / "text.txt");
    };
    const Plan whole = plan_for(layout);
    const Run reference = run(whole, kSteps);
    check_memory(whole, reference.result);
    LayoutCase group = with(layout.name + ", group_2", layout, Recompute::kFull, -1, false);
    group.strategy = "group_2";
    for (const LayoutCase& less :
         {group, with(layout.name + ", full", layout, Recompute::kFull, -1, false),
          with(layout.name + ", full for 1 layer", layout, Recompute::kFull, 1, false),
          with(layout.name + ", selective", layout, Recompute::kSelective, -1, false),
          with(layout.name + ", selective and offload", layout, Recompute::kSelective, -1, true),
          with(layout.name + ", offload", layout, Recompute::kNone, -1, true),
          with(layout.name + ", full and offload", layout, Recompute::kFull, -1, true)}) {
      INFO(less.name);
      const Plan plan = plan_for(less);
      const Run one_run = run(plan, kSteps);
      check_equal(one_run, reference);
      check_memory(plan, one_run.result);
      check_wire(plan, one_run.result);
      const int64_t saved = peak_bytes(reference.result) - peak_bytes(one_run.result);
      const int64_t predicted = predicted_bytes(whole) - predicted_bytes(plan);
      MESSAGE(fmt::format("{}: saves {} bytes of {}, predicted {}", less.name, saved,
                          peak_bytes(reference.result), predicted));
      CHECK(saved == predicted);
      CHECK(saved > 0);
    }
  }
}

// What experts need depends on the router, so the plan's peaks are bounds.
TEST_CASE("experts: recompute and offload change no bit") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  const LayoutCase one{"one rank", {}};
  LayoutCase deep{"p2t2", {.pipeline = 2, .tensor = 2}};
  deep.pipeline = PipelineKind::kZbV;
  deep.virtual_stages = 2;
  deep.microbatches = 6;
  for (const ModelSpec& model :
       {mixtral_model(), wider(deepseek_model()), olmoe_model(), gpt_oss_model()}) {
    for (const LayoutCase& layout : {one, deep}) {
      const auto plan_for = [&](const LayoutCase& which) {
        return plan_of(model, which, Precision::kFp32, folder / "text.txt");
      };
      const Run reference = run(plan_for(layout), kSteps);
      for (const LayoutCase& less :
           {with(layout.name + ", full", layout, Recompute::kFull, -1, false),
            with(layout.name + ", selective and offload", layout, Recompute::kSelective, -1, true),
            with(layout.name + ", full and offload", layout, Recompute::kFull, -1, true)}) {
        INFO(model.name << " " << less.name);
        const Plan plan = plan_for(less);
        const Run one_run = run(plan, kSteps);
        check_equal(one_run, reference);
        check_memory(plan, one_run.result);
        check_wire(plan, one_run.result);
        CHECK(peak_bytes(one_run.result) < peak_bytes(reference.result));
      }
    }
  }
}

// The bias of a router is updated by a rule of its own; of these many experts some are even.
TEST_CASE("experts: 16 bits with the optimizer on the host change no bit") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  ModelSpec model = deepseek_model();
  model.experts_per_token = 4;
  for (const LayoutCase& layout : {LayoutCase{"one rank", {}}, LayoutCase{"z2", {.shard = 2}}}) {
    INFO(layout.name);
    LayoutCase less = layout;
    less.offload_optimizer = true;
    const Plan plan = plan_of(model, less, Precision::kBf16, folder / "text.txt");
    const Run one_run = run(plan, kSteps);
    check_equal(one_run,
                run(plan_of(model, layout, Precision::kBf16, folder / "text.txt"), kSteps));
    check_memory(plan, one_run.result);
  }
  // Every token goes to all experts: no bias ever moves.
  model.router = RouterKind::kSoftmax;
  model.expert_groups = model.expert_groups_per_token = 1;
  model.experts_per_token = model.num_experts;
  LayoutCase host{"one rank", {}};
  host.offload_optimizer = true;
  const Run even = run(plan_of(model, host, Precision::kBf16, folder / "text.txt"), kSteps);
  int64_t biases = 0;
  for (const auto& [name, values] : even.weights) {
    if (!name.ends_with("correction_bias")) continue;
    for (const double value : values) CHECK(value == 0);
    ++biases;
  }
  CHECK(biases == model.num_layers - model.first_dense_layers);
}

TEST_CASE("optimizer state and weights on the host change no bit, and save what the plan says") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  LayoutCase deep{"p2 t2", {.pipeline = 2, .tensor = 2}};
  LayoutCase sharded{"z2", {.shard = 2}};
  LayoutCase gradients{"z3 gradients", {.shard = 3}};
  gradients.sharding = Sharding::kGradients;
  gradients.microbatches = 4;
  LayoutCase parameters{"p2 z2 parameters", {.pipeline = 2, .shard = 2}};
  parameters.sharding = Sharding::kParameters;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const LayoutCase& layout :
         {LayoutCase{"one rank", {}}, deep, sharded, gradients, parameters}) {
      const auto plan_for = [&](const LayoutCase& which) {
        return plan_of(wider(llama_tied_model()), which, precision, folder / "text.txt");
      };
      const Plan whole = plan_for(layout);
      const Run reference = run(whole, kSteps);
      for (const bool weights_too : {false, true}) {
        if (weights_too && layout.sharding != Sharding::kParameters) continue;
        LayoutCase less = layout;
        less.offload_optimizer = true;
        less.offload_parameters = weights_too;
        CAPTURE(layout.name);
        CAPTURE(weights_too);
        const Plan plan = plan_for(less);
        const Run one_run = run(plan, kSteps);
        check_equal(one_run, reference);
        check_memory(plan, one_run.result);
        check_wire(plan, one_run.result);
        const int64_t saved = peak_bytes(reference.result) - peak_bytes(one_run.result);
        MESSAGE(fmt::format("{}{}: saves {} bytes of {}", layout.name,
                            weights_too ? ", weights too" : "", saved,
                            peak_bytes(reference.result)));
        CHECK(saved == predicted_bytes(whole) - predicted_bytes(plan));
        CHECK(saved > 0);
      }
    }
  }
}

TEST_CASE("the horizon of loading: more fetched ahead, more held, the same numbers") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  Run reference;
  int64_t before = 0;
  for (const int64_t horizon : {1, 2, 4}) {
    LayoutCase layout{"offload", {}};
    layout.offload_activations = true;
    Plan plan = plan_of(wider(llama_model()), layout, Precision::kFp32, folder / "text.txt");
    plan.job.parallel.activation_loading_horizon = horizon;
    plan.predictions.ranks = memory::predict_memory(plan);
    const Run one_run = run(plan, kSteps);
    check_memory(plan, one_run.result);
    CHECK(peak_bytes(one_run.result) > before);
    before = peak_bytes(one_run.result);
    if (horizon == 1) reference = one_run;
    check_equal(one_run, reference);
  }
}

// Clipping would scale by the norm, whose sum over the ranks depends on their number.
TEST_CASE("untied, unclipped: any schedule over any stages is bitwise one rank") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  const auto plan_for = [&](const LayoutCase& layout) {
    ModelSpec model = gpt2_untied_model();
    model.hidden_dropout = model.attention_dropout = 0.1;
    Plan plan = plan_of(model, layout, Precision::kFp32, folder / "text.txt");
    plan.job.training.optimizer.gradient_clipping = 0;
    return plan;
  };
  std::map<int64_t, Run> references;  // by microbatches
  for (const LayoutCase& layout : schedules()) {
    if (layout.degrees.world() != layout.degrees.pipeline) continue;
    INFO(layout.name);
    LayoutCase one{"one rank", {}};
    one.microbatches = layout.microbatches;
    if (!references.contains(one.microbatches)) {
      references[one.microbatches] = run(plan_for(one), kSteps);
    }
    check_equal(run(plan_for(layout), kSteps), references.at(one.microbatches));
  }
}

TEST_CASE("evaluation gives the loss of a step before it, and changes nothing") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << sample_text(20000);
  std::vector<LayoutCase> cases = schedules();
  cases.push_back({"one rank", {}});
  cases.push_back({"d2", {.replica = 2}});
  std::mutex mutex;
  for (const LayoutCase& layout : cases) {
    INFO(layout.name);
    const Plan plan = plan_of(gpt2_model(), layout, Precision::kFp64, folder / "text.txt");
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      ledger::install_counting_allocator();
      ledger::MemoryLedger ledger(world.rank(), 0);
      const ledger::LedgerScope scope(ledger);
      parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
      const std::unique_ptr<feed::DataSource> data = feed::open_data(plan);
      engine::Engine engine(
          plan, model, ledger,
          [&](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
            data->read(step, first, count, out);
          });
      const double first = engine.evaluate(0);
      const double other = engine.evaluate(1);
      const double again = engine.evaluate(0);
      const engine::StepResult step = engine.step(0, 1e-3);
      const double after = engine.evaluate(0);
      const std::lock_guard lock(mutex);  // doctest's checks come one at a time
      CHECK(first == again);
      CHECK(first != other);
      CHECK(step.loss == first);
      CHECK(after < first);
    });
  }
}

}  // namespace smp::parity
