#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/planner/memory_model.h"
#include "smp/runtime/trainer.h"

namespace smp {
namespace {

class Bench {
 public:
  Bench() { std::ofstream(folder_ / "text.txt") << parity::sample_text(8000); }

  Plan plan(const Degrees& degrees, Precision precision) const {
    return parity::plan_of(parity::gpt2_model(), {"", degrees}, precision, folder_ / "text.txt");
  }

  RunResult run(const Plan& plan, int64_t steps) const {
    RunResult result;
    run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
      TrainOptions options;
      options.threads = 1;
      options.steps = steps;
      RunResult mine = train(plan, world, options);
      if (world.rank() == 0) result = std::move(mine);
    });
    return result;
  }

 private:
  ScratchFolder folder_;
};

// Each block writes eight tensors between its input and its output, embedding and head two each.
// Every element of them is rounded by at most u, independently, so a logit is off by about
// u sqrt(tensors) of its size, and the loss by no more.
double tolerance(double unit_roundoff, int64_t layers) {
  return unit_roundoff * std::sqrt(static_cast<double>(8 * layers + 4));
}

}  // namespace

TEST_CASE("bf16 and fp16 train as fp32 does, within what rounding explains, in any layout") {
  const Bench bench;
  constexpr int64_t kSteps = 20;
  const RunResult exact = bench.run(bench.plan({}, Precision::kFp32), kSteps);
  REQUIRE(exact.losses.back() < exact.losses.front());
  const int64_t layers = parity::gpt2_model().num_layers;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const double unit_roundoff = precision == Precision::kBf16 ? 0x1p-8 : 0x1p-11;
    for (const Degrees& degrees :
         {Degrees{}, Degrees{.pipeline = 2, .shard = 2}, Degrees{.tensor = 2, .replica = 2}}) {
      const RunResult rounded = bench.run(bench.plan(degrees, precision), kSteps);
      CHECK(rounded.run.skipped_steps == 0);
      double worst = 0;
      for (size_t i = 0; i < exact.losses.size(); ++i) {
        worst = std::max(worst, std::abs(rounded.losses[i] / exact.losses[i] - 1));
      }
      CHECK(worst <= tolerance(unit_roundoff, layers));
      MESSAGE((precision == Precision::kBf16 ? "bf16" : "fp16")
              << ": loss within " << worst << ", allowed " << tolerance(unit_roundoff, layers));
    }
  }
}

TEST_CASE("16-bit training takes 18 bytes a parameter, predicted and counted") {
  const Bench bench;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Plan plan = bench.plan({}, precision);
    const BytesPerParameter bytes = bytes_per_parameter(plan.job);
    CHECK(bytes.weight == 2);
    CHECK(bytes.gradient == 4);
    CHECK(bytes.optimizer() == 12);
    CHECK(bytes.total() == 18);
    const RankFacts rank = bench.run(plan, 2).ranks.front();
    CategoryBytes states{};
    for (const MemoryTerm& term : predict_memory(plan, 0, 0).terms) {
      states[static_cast<size_t>(term.category)] += term.bytes;
    }
    for (const MemoryCategory category :
         {MemoryCategory::kWeights, MemoryCategory::kGradients, MemoryCategory::kOptimizer}) {
      CHECK(rank.peak.by_category[static_cast<size_t>(category)] ==
            states[static_cast<size_t>(category)]);
    }
  }
}

}  // namespace smp
