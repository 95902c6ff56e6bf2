#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "parity/rounding.h"
#include "plan/list_samples.h"
#include "runtime/short_runs.h"
#include "smp/planner/memory/memory_model.h"
#include "worst.h"

namespace smp {
TEST_CASE("bf16 and fp16 train as fp32 does, within what rounding explains, in any layout") {
  const test::ShortRuns bench;
  constexpr int64_t kSteps = 20;
  for (const ModelSpec& model : {parity::gpt2_model(), smooth_list()}) {
    INFO(model.name);
    const auto run = [&](const mesh::Degrees& degrees, Precision precision) {
      Plan plan = bench.plan({"", degrees}, precision, model);
      plan.job.training.loss_scale.init_scale = 1024;  // which nothing overflows
      return bench.run(plan, test::options_of("", kSteps));
    };
    const training::RunResult exact = run({}, Precision::kFp32);
    REQUIRE(exact.losses.back() < exact.losses.front());
    for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
      const double allowed = parity::narrow_loss(precision, model);
      for (const mesh::Degrees& degrees :
           {mesh::Degrees{}, mesh::Degrees{.pipeline = 2, .shard = 2},
            mesh::Degrees{.tensor = 2, .replica = 2}}) {
        const training::RunResult rounded = run(degrees, precision);
        CHECK(rounded.run.skipped_steps == 0);
        double worst = 0;
        for (size_t i = 0; i < exact.losses.size(); ++i) {
          worst = smp::testing::worst_of(worst, std::abs(rounded.losses[i] / exact.losses[i] - 1));
        }
        CHECK(worst <= allowed);
        MESSAGE(model.name << (precision == Precision::kBf16 ? " bf16" : " fp16")
                           << ": loss within " << worst << ", allowed " << allowed);
      }
    }
  }
}

TEST_CASE("a list of layers in fp16: steps that overflow are skipped alike on every rank") {
  const test::ShortRuns bench;
  constexpr int64_t kSteps = 10;
  std::vector<training::RunResult> results;
  for (const mesh::Degrees& degrees : {mesh::Degrees{}, mesh::Degrees{.pipeline = 2, .shard = 2}}) {
    Plan plan = bench.plan({"", degrees}, Precision::kFp16, parity::image_model());
    plan.job.training.loss_scale.init_scale = 0x1p19;
    results.push_back(bench.run(plan, test::options_of("", kSteps)));
    CHECK(results.back().run.skipped_steps == results.front().run.skipped_steps);
    for (const double loss : results.back().losses) CHECK(std::isfinite(loss));
  }
  CHECK(results.front().run.skipped_steps > 0);
  CHECK(results.front().run.skipped_steps < kSteps);
}

TEST_CASE("16-bit training takes 18 bytes a parameter, predicted and counted") {
  const test::ShortRuns bench;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Plan plan = bench.plan({"", {}}, precision);
    const memory::BytesPerParameter bytes = memory::bytes_per_parameter(plan.job);
    CHECK(bytes.weight == 2);
    CHECK(bytes.gradient == 4);
    CHECK(bytes.optimizer() == 12);
    CHECK(bytes.total() == 18);
    const record::RankMeasurements rank = bench.run(plan, test::options_of("", 2)).ranks.front();
    ledger::CategoryBytes states{};
    for (const MemoryTerm& term : memory::predict_memory(plan, 0, 0).terms) {
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
