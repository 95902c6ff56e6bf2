#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "parity/comparison.h"
#include "parity/covering.h"
#include "parity/layouts.h"
#include "runtime/short_runs.h"
#include "smp/plan/jobfile/job_reader.h"

// What the other tests of this folder do in a few steps, for 100: scripts/sweep-parity.
namespace smp::parity {

TEST_CASE("GPT-2, fp64, 100 steps: 18 layouts train as one rank does") {
  compare(gpt2_model(), Precision::kFp64, mixed_layouts(), 100);
}
TEST_CASE("GPT-2, fp32, 100 steps: 18 layouts train as one rank does") {
  compare(gpt2_model(), Precision::kFp32, mixed_layouts(), 100);
}
TEST_CASE("Llama, fp64, 100 steps: 18 layouts train as one rank does") {
  compare(llama_model(), Precision::kFp64, mixed_layouts(), 100);
}
TEST_CASE("Llama, fp32, 100 steps: 18 layouts train as one rank does") {
  compare(llama_model(), Precision::kFp32, mixed_layouts(), 100);
}
TEST_CASE("the covering set, fp64, 100 steps: every combination trains as one rank does") {
  compare_covering_set(100);
}

// 61 million parameters; 8 ranks hold about 4 GiB together, and each checkpoint takes 1.4 GiB. In
// fp32 what rounding differs by grows to 3e-4 of the loss in these steps.
TEST_CASE("AlexNet itself, fp64: saved by 8 ranks and by stages, resumed by others") {
  constexpr int64_t kSaved = 2, kSteps = 4;
  const JobSpec job = jobfile::read_job(
      {jobfile::load_job_source(SMP_SOURCE_DIR "/configs/models/alexnet.yaml")}, {});
  const auto plan_for = [&](const LayoutCase& layout) {
    Plan plan = plan_of(job.model, layout, Precision::kFp64, test::digits_file());
    plan.job.cluster.memory_per_process_bytes = int64_t{8} << 30;
    plan.job.training.images = test::digits_job().training.images;
    plan.job.training.checkpoint.every_steps = kSaved;
    return plan;
  };
  const auto three = Sharding::kParameters;
  const LayoutCase one{"one rank", {}}, p3{"p3", {.pipeline = 3}}, t2{"t2", {.tensor = 2}};
  const LayoutCase eight{"t2p2z2", {.pipeline = 2, .tensor = 2, .shard = 2}};
  LayoutCase z3{"z3 ZeRO-3", {.shard = 3}, PipelineKind::kInterleaved, three};
  z3.microbatches = 2;  // 12 samples in 6 parts
  const ScratchFolder whole;
  const training::RunResult expected =
      test::ShortRuns::run(plan_for(one), test::options_of(whole.path(), kSteps));
  for (const LayoutCase& from : {eight, p3}) {
    const ScratchFolder first;
    test::ShortRuns::run(plan_for(from), test::options_of(first.path(), kSaved));
    for (const LayoutCase& to : {from.name == "p3" ? eight : p3, z3, t2}) {
      INFO(from.name << " to " << to.name);
      const ScratchFolder second;
      std::filesystem::copy(first / "checkpoints", second / "checkpoints",
                            std::filesystem::copy_options::recursive);
      const training::RunResult result =
          test::ShortRuns::run(plan_for(to), test::resumed(second.path(), kSteps));
      REQUIRE(result.losses.size() == kSteps - kSaved);
      for (size_t i = 0; i < result.losses.size(); ++i) {
        const double right = expected.losses[kSaved + i];
        CHECK(std::abs(result.losses[i] - right) <= tolerance::kParityF64.loss * right);
      }
    }
  }
}

}  // namespace smp::parity
