#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "parity/layouts.h"
#include "runtime/host_gpu.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/operators.h"
#include "smp/runtime/trainer.h"

// The last batch of an evaluation, which its samples need not fill.

namespace smp {
namespace {

using parity::LayoutCase;

constexpr int64_t kBatch = 12;
constexpr int64_t kSamples = 20;  // a batch and most of another

RunResult evaluated(const ModelSpec& model, const LayoutCase& layout, const std::string& data,
                    int64_t batch, const OpenGpu& open_gpu = {}) {
  Plan plan = parity::plan_of(model, layout, Precision::kFp64, data);
  TrainingSpec& training = plan.job.training;
  if (open_gpu) plan.job.cluster.device = DeviceKind::kCuda;
  training.global_batch = batch;
  training.micro_batch = batch / layout.microbatches / layout.degrees.data();
  training.optimizer.learning_rate = training.optimizer.min_learning_rate = 0;
  training.evaluation = {.every_steps = 1, .samples = kSamples, .pad_last_batch = true};
  RunResult result;
  run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
    TrainOptions options;
    options.threads = 1;
    options.steps = 1;
    if (open_gpu) options.open_gpu = open_gpu;
    RunResult mine = train(plan, world, options);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace

TEST_CASE("an evaluation's padded batch counts its own samples alone on GPUs") {
  const ScratchFolder folder;
  const ModelSpec model = parity::gpt2_model();
  const std::string path = folder / "data";
  std::ofstream(path) << parity::sample_data(model);
  for (const LayoutCase& layout :
       {LayoutCase{"d2", {.replica = 2}}, LayoutCase{"t2", {.tensor = 2}}}) {
    INFO(layout.name);
    const double expected = *evaluated(model, layout, path, kBatch).run.evaluation_loss;
    test::HostGpus gpus;
    CHECK(*evaluated(model, layout, path, kBatch, gpus.open()).run.evaluation_loss ==
          doctest::Approx(expected).epsilon(1e-13));
  }
}

TEST_CASE("an evaluation's padded batch counts its own samples alone, in every layout") {
  const ScratchFolder folder;
  for (const ModelSpec& model : {parity::gpt2_model(), parity::t5_model(), parity::image_model()}) {
    INFO(model.name);
    const std::string path = folder / (model.name + ".data");
    std::ofstream(path) << (is_list(model) ? parity::sample_images(model, 3 * kSamples)
                                           : parity::sample_data(model));
    LayoutCase one{"one rank", {}};
    one.microbatches = 1;
    const RunResult whole = evaluated(model, one, path, kSamples);
    LayoutCase sharded{"p2 z2", {.pipeline = 2, .shard = 2}};
    for (const LayoutCase& layout : {LayoutCase{"one rank", {}}, LayoutCase{"t2", {.tensor = 2}},
                                     LayoutCase{"d2", {.replica = 2}}, sharded}) {
      INFO(layout.name);
      const RunResult padded = evaluated(model, layout, path, kBatch);
      CHECK(*padded.run.evaluation_loss ==
            doctest::Approx(*whole.run.evaluation_loss).epsilon(1e-13));
      if (whole.run.accuracy) CHECK(*padded.run.accuracy == doctest::Approx(*whole.run.accuracy));
    }
  }
}

}  // namespace smp
