#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parallel/parallelize.h"
#include "smp/runtime/training/trainer.h"

namespace smp {
namespace {

class Bench {
 public:
  Bench() { std::ofstream(folder_ / "text.txt") << parity::sample_text(8000); }

  Plan plan(const ModelSpec& model, const parity::LayoutCase& layout) const {
    return parity::plan_of(model, layout, Precision::kFp32, folder_ / "text.txt");
  }
  Plan plan(const ModelSpec& model, const mesh::Degrees& degrees) const {
    return plan(model, parity::LayoutCase{"", degrees});
  }

  // Losses, then gradient norms, of five steps.
  std::vector<double> curve(const Plan& plan) const {
    std::vector<double> curve;
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      training::TrainOptions options;
      options.threads = 1;
      options.steps = 5;
      const training::RunResult result = training::train(plan, world, options);
      if (world.rank() != 0) return;
      curve = result.losses;
      curve.insert(curve.end(), result.grad_norms.begin(), result.grad_norms.end());
    });
    return curve;
  }

 private:
  ScratchFolder folder_;
};

mesh::Degrees with_stages(mesh::Degrees degrees, int64_t stages) {
  degrees.pipeline = stages;
  return degrees;
}

}  // namespace

TEST_CASE("a run is repeated to the bit, under every kind of parallelism at once") {
  const Bench bench;
  for (const mesh::Degrees& degrees :
       {mesh::Degrees{}, mesh::Degrees{.pipeline = 2, .tensor = 2, .shard = 2}}) {
    const Plan plan = bench.plan(parity::gpt2_model(), degrees);
    CHECK(bench.curve(plan) == bench.curve(plan));
  }
}

TEST_CASE("without tied weights the number of stages does not change a bit of the training") {
  const Bench bench;
  for (const ModelSpec& model : {parity::gpt2_untied_model(), parity::llama_model()}) {
    for (const mesh::Degrees& degrees :
         {mesh::Degrees{}, mesh::Degrees{.replica = 2}, mesh::Degrees{.tensor = 2}}) {
      const std::vector<double> one = bench.curve(bench.plan(model, degrees));
      for (const int64_t stages : {2, 3}) {
        INFO("stages " << stages << ", tensor " << degrees.tensor << ", data " << degrees.data());
        CHECK(bench.curve(bench.plan(model, with_stages(degrees, stages))) == one);
      }
    }
  }
}

TEST_CASE("from the third step on a step asks the system for no memory") {
  const Bench bench;
  const auto three = Sharding::kParameters;
  std::vector<parity::LayoutCase> layouts{
      {"one rank", {}},
      {"p2d2 ZeRO-1", {.pipeline = 2, .shard = 2}},
      {"t2d2 ZeRO-3", {.tensor = 2, .shard = 2}, PipelineKind::kInterleaved, three},
      {"p2 zb_v", {.pipeline = 2}, PipelineKind::kZbV, Sharding::kNone, 2},
      {"d2 ZeRO-3, recomputed and offloaded", {.shard = 2}, PipelineKind::kInterleaved, three},
  };
  layouts.back().recompute = Recompute::kFull;
  layouts.back().offload_activations = true;
  layouts.back().offload_optimizer = layouts.back().offload_parameters = true;
  ModelSpec llama = parity::llama_model();
  llama.hidden_dropout = 0.1;
  for (const ModelSpec& model : {parity::gpt2_model(), llama}) {
    for (const parity::LayoutCase& layout : layouts) {
      INFO(model.name << " " << layout.name);
      const Plan plan = bench.plan(model, layout);
      jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
        ledger::install_counting_allocator();
        ledger::MemoryLedger ledger(world.rank(), 0);
        const ledger::LedgerScope scope(ledger);
        parallel::ParallelModel share = parallel::apply_parallelism(plan, world, ledger);
        engine::Engine engine(plan, share, ledger,
                              constant_samples(plan.job.training.sequence_length));
        for (int64_t step = 0; step < 3; ++step) engine.step(step, 1e-3);
        const int64_t asked = ledger.system_allocations();
        CHECK(asked > 0);
        for (int64_t step = 3; step < 8; ++step) engine.step(step, 1e-3);
        CHECK(ledger.system_allocations() == asked);
        engine.wait_all();
      });
    }
  }
}

}  // namespace smp
