#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "files_and_errors.h"
#include "runtime/short_runs.h"
#include "tolerances.h"

// Runs with each technique that save, end, and go on: in the same layout bit by bit as if they had
// never ended, on one rank as near as layouts are to each other.
namespace smp {
namespace {

using namespace smp::test;
using parity::LayoutCase;

constexpr int64_t kSaved = 3;  // steps before the checkpoint
constexpr int64_t kSteps = 6;

struct Technique {
  std::string name;
  LayoutCase layout;
  Precision precision = Precision::kFp64;
  std::function<void(JobSpec&)> set = [](JobSpec&) {};
  ModelSpec model = parity::gpt2_model();
};

std::vector<Technique> techniques() {
  const auto interleaved = PipelineKind::kInterleaved;
  const mesh::Degrees p2{.pipeline = 2}, z2{.shard = 2};
  const auto zero3 = [&](const mesh::Degrees& degrees) {
    return LayoutCase{"", degrees, interleaved, Sharding::kParameters};
  };
  const auto with = [](LayoutCase layout, const auto& change) {
    change(layout);
    return layout;
  };
  const auto fp16 = Precision::kFp16, bf16 = Precision::kBf16;
  // The scale grows every second step, falls at its first overflow, and is saved between.
  const auto lively_scale = [](JobSpec& job) {
    job.training.loss_scale.init_scale = 0x1p22;
    job.training.loss_scale.scale_window = 2;
  };
  const auto sgd = [](double momentum) {
    return [momentum](JobSpec& job) {
      job.training.optimizer.kind = OptimizerKind::kSgd;
      job.training.optimizer.momentum = momentum;
      job.training.optimizer.learning_rate = 0.1;
      job.training.optimizer.weight_decay = 0;
    };
  };
  return {
      {"bf16, p2 ZeRO-1", {"", {.pipeline = 2, .shard = 2}}, bf16},
      {"bf16, ZeRO-3", zero3(z2), bf16},
      {"fp16, one rank", {"", {}}, fp16, lively_scale},
      {"fp16, t2", {"", {.tensor = 2}}, fp16, lively_scale},
      {"fp16, p2 ZeRO-3", zero3({.pipeline = 2, .shard = 2}), fp16, lively_scale},
      {"fp16, static scale",
       {"", z2},
       fp16,
       [](JobSpec& job) { job.training.loss_scale.dynamic = false; }},
      {"virtual", with({"", p2, PipelineKind::kVirtual},
                       [](LayoutCase& layout) {
                         layout.virtual_stages = 2;
                         layout.microbatches = 2;
                       })},
      {"zb_h1, ZeRO-1", {"", {.pipeline = 2, .shard = 2}, PipelineKind::kZbH1}},
      {"zb_v",
       with({"", p2, PipelineKind::kZbV}, [](LayoutCase& layout) { layout.virtual_stages = 2; })},
      {"recompute",
       with(zero3(z2), [](LayoutCase& layout) { layout.recompute = Recompute::kFull; })},
      {"recompute of 1 layer, p2", with({"", p2},
                                        [](LayoutCase& layout) {
                                          layout.recompute = Recompute::kFull;
                                          layout.recompute_layers = 1;
                                        })},
      {"offload_activations",
       with({"", p2}, [](LayoutCase& layout) { layout.offload_activations = true; })},
      {"offload_activations and recompute, ZeRO-2",
       with({"", z2, interleaved, Sharding::kGradients},
            [](LayoutCase& layout) {
              layout.recompute = Recompute::kFull;
              layout.offload_activations = true;
            })},
      {"sgd with momentum, ZeRO-1", {"", z2}, Precision::kFp64, sgd(0.9)},
      {"sgd without, ZeRO-3", zero3(z2), Precision::kFp64, sgd(0)},
      {"evaluation",
       {"", {.tensor = 2}},
       Precision::kFp64,
       [](JobSpec& job) {
         job.training.evaluation.every_steps = 2;
         job.training.evaluation.samples = 12;
       }},
      {"hybrid shard", zero3({.shard = 2, .replica = 2})},
      {.name = "a list of layers, one rank", .layout = {"", {}}, .model = parity::image_model()},
      {.name = "a list of layers, p2 ZeRO-3",
       .layout = zero3({.pipeline = 2, .shard = 2}),
       .set = sgd(0.9),
       .model = parity::image_model()},
      {.name = "a list of layers, t2 ZeRO-1",
       .layout = {"", {.tensor = 2, .shard = 2}},
       .precision = Precision::kFp32,
       .model = parity::image_model()},
      {.name = "T5, p2 ZeRO-1",
       .layout = {"", {.pipeline = 2, .shard = 2}},
       .model = parity::t5_model()},
  };
}

Plan plan_of(const ShortRuns& runs, const Technique& technique, const LayoutCase& layout) {
  Plan plan = runs.plan(layout, technique.precision, technique.model);
  technique.set(plan.job);
  plan.job.training.checkpoint.every_steps = kSaved;
  return plan;
}

void check_same(const training::RunResult& resumed, const training::RunResult& whole) {
  CHECK(resumed.first_step == kSaved);
  REQUIRE(resumed.losses.size() == kSteps - kSaved);
  for (size_t i = 0; i < resumed.losses.size(); ++i) {
    CHECK(resumed.losses[i] == whole.losses[kSaved + i]);
    const double norm = resumed.grad_norms[i], expected = whole.grad_norms[kSaved + i];
    CHECK((norm == expected || (!std::isfinite(norm) && !std::isfinite(expected))));
  }
  CHECK(resumed.run.evaluation_loss == whole.run.evaluation_loss);
  CHECK(resumed.run.loss_scale == whole.run.loss_scale);
}

}  // namespace

TEST_CASE("resume: whatever technique saved a run, it goes on to the bit, and on one rank too") {
  const ShortRuns runs;
  for (const Technique& technique : techniques()) {
    INFO(technique.name);
    const ScratchFolder whole, parts, other;
    const Plan plan = plan_of(runs, technique, technique.layout);
    const training::RunResult expected = ShortRuns::run(plan, options_of(whole.path(), kSteps));
    ShortRuns::run(plan, options_of(parts.path(), kSaved));
    std::filesystem::copy(parts / "checkpoints", other / "checkpoints",
                          std::filesystem::copy_options::recursive);
    check_same(ShortRuns::run(plan, resumed(parts.path(), kSteps)), expected);
    const std::string weights = "weights/model.safetensors";
    CHECK(text_of(parts / weights) == text_of(whole / weights));

    const training::RunResult one =
        ShortRuns::run(plan_of(runs, technique, {"", {}}), resumed(other.path(), kSteps));
    REQUIRE(one.losses.size() == kSteps - kSaved);
    const double allowed = technique.precision == Precision::kFp64 ? tolerance::kParityF64.loss
                                                                   : tolerance::kResumedNarrowLoss;
    for (size_t i = 0; i < one.losses.size(); ++i) {
      const double right = expected.losses[kSaved + i];
      CHECK(std::abs(one.losses[i] - right) <= allowed * right);
    }
  }
}

}  // namespace smp
