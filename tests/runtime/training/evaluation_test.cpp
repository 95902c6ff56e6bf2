#include "training/evaluation.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "parity/layouts.h"
#include "runtime/host_gpu.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/model/operators.h"
#include "smp/runtime/training/trainer.h"

// The last batch of an evaluation, which its samples need not fill.

namespace smp {
namespace {

using parity::LayoutCase;

constexpr int64_t kBatch = 12;
constexpr int64_t kSamples = 20;  // a batch and most of another

training::RunResult evaluated(const ModelSpec& model, const LayoutCase& layout,
                              const std::string& data, int64_t batch,
                              const gpu::GpuLoader& open_gpu = {}) {
  Plan plan = parity::plan_of(model, layout, Precision::kFp64, data);
  TrainingSpec& training = plan.job.training;
  if (open_gpu) plan.job.cluster.device = DeviceKind::kCuda;
  training.global_batch = batch;
  training.micro_batch = batch / layout.microbatches / layout.degrees.data();
  training.optimizer.learning_rate = training.optimizer.min_learning_rate = 0;
  training.evaluation = {.every_steps = 1, .samples = kSamples, .pad_last_batch = true};
  training::RunResult result;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
    training::TrainOptions options;
    options.threads = 1;
    options.steps = 1;
    if (open_gpu) options.open_gpu = open_gpu;
    training::RunResult mine = training::train(plan, world, options);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

// Held out are samples of which the i-th has `counted(i)` targets that count.
class FewTargets final : public feed::DataSource {
 public:
  using Counted = int64_t (*)(int64_t sample);
  FewTargets(int64_t length, Counted counted) : length_(length), counted_(counted) {}

  void read(int64_t, int64_t, int64_t, const engine::SampleBuffers&) const override {}
  void read_held_out(size_t set, int64_t first, int64_t count,
                     const engine::SampleBuffers& out) const override {
    for (int64_t i = 0; i < count * length_; ++i) {
      const int64_t sample = first + i / length_, place = i % length_;
      if (int64_t* tokens = out.integers(model::BatchField::kTokens)) {
        tokens[i] = (sample * 17 + place) % 90;
      }
      if (int64_t* targets = out.integers(model::BatchField::kTargets)) {
        targets[i] = place < counted_(sample)
                         ? (sample * 17 + place * (place + static_cast<int64_t>(set))) % 90
                         : data::kNoTarget;
      }
    }
  }
  std::vector<std::string> evaluation_sets() const override { return {"first", "second"}; }
  int64_t trained_size() const override { return 0; }
  std::vector<files::FileIdentity> files() const override { return {}; }
  std::vector<files::FileIdentity> evaluation_files() const override { return {}; }

 private:
  const int64_t length_;
  const Counted counted_;
};

double held_out_loss(const LayoutCase& layout, FewTargets::Counted counted, int64_t samples) {
  Plan plan = parity::plan_of(parity::gpt2_model(), layout, Precision::kFp64, "");
  TrainingSpec& training = plan.job.training;
  training.evaluation = {.every_steps = 1, .samples = samples};
  double loss = 0;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
    ledger::MemoryLedger ledger(world.rank(), 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    const FewTargets data(training.sequence_length, counted);
    training::Evaluation evaluation(plan, data, *model.groups);
    engine::Engine engine(plan, model, ledger, evaluation.reader({}));
    const double mine = evaluation.loss(engine);
    CHECK(mine == evaluation.losses().at(0).loss);
    CHECK(evaluation.losses().at(0).set == "first");
    CHECK(evaluation.losses().at(1).set == "second");
    CHECK(evaluation.losses().at(1).loss > 0);
    CHECK(evaluation.losses().at(1).loss != mine);  // its targets are others
    if (world.rank() == 0) loss = mine;
  });
  return loss;
}

}  // namespace

TEST_CASE("an evaluation's loss is the mean over the targets that count in all its batches") {
  const auto uneven = [](int64_t sample) -> int64_t { return sample % 5 == 0 ? 0 : sample; };
  const LayoutCase one{"one rank", {}};
  // Batch by batch: sums are means times counts.
  double sum = 0;
  int64_t targets = 0;
  for (int64_t batch = 0; batch < 2; ++batch) {
    const auto of_batch = [&]() -> FewTargets::Counted {
      if (batch == 0) return [](int64_t s) -> int64_t { return s < 12 && s % 5 != 0 ? s : 0; };
      return [](int64_t s) -> int64_t { return s >= 12 && s % 5 != 0 ? s : 0; };
    };
    int64_t counted = 0;
    for (int64_t sample = 0; sample < 24; ++sample) counted += of_batch()(sample);
    sum += held_out_loss(one, of_batch(), 24) * static_cast<double>(counted);
    targets += counted;
  }
  for (const LayoutCase& layout :
       {one, LayoutCase{"d4", {.replica = 4}}, LayoutCase{"p2t2", {.pipeline = 2, .tensor = 2}}}) {
    INFO(layout.name);
    CHECK(held_out_loss(layout, uneven, 24) ==
          doctest::Approx(sum / static_cast<double>(targets)).epsilon(1e-12));
  }
  try {
    held_out_loss(
        {"d2", {.replica = 2}}, [](int64_t) -> int64_t { return 0; }, 24);
    FAIL("no error");
  } catch (const optim::TrainingError& error) {
    CHECK(std::string(error.what()) ==
          "no target of the evaluation data (set first) counts in the loss: raise "
          "training.evaluation.samples, or correct the data's loss mask");
  }
}

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
    std::ofstream(path) << (model::is_list(model) ? parity::sample_images(model, 3 * kSamples)
                                                  : parity::sample_data(model));
    LayoutCase one{"one rank", {}};
    one.microbatches = 1;
    const training::RunResult whole = evaluated(model, one, path, kSamples);
    LayoutCase sharded{"p2 z2", {.pipeline = 2, .shard = 2}};
    for (const LayoutCase& layout : {LayoutCase{"one rank", {}}, LayoutCase{"t2", {.tensor = 2}},
                                     LayoutCase{"d2", {.replica = 2}}, sharded}) {
      INFO(layout.name);
      const training::RunResult padded = evaluated(model, layout, path, kBatch);
      CHECK(*padded.run.evaluation_loss ==
            doctest::Approx(*whole.run.evaluation_loss).epsilon(1e-13));
      if (whole.run.accuracy) CHECK(*padded.run.accuracy == doctest::Approx(*whole.run.accuracy));
    }
  }
}

}  // namespace smp
