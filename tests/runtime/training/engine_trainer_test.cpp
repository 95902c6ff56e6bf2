#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/training/trainer.h"

namespace smp {
namespace {

// A text to train on, and short runs over it with the ranks as threads.
class Bench {
 public:
  Bench() { std::ofstream(folder_ / "text.txt") << parity::sample_text(8000); }

  Plan plan(const mesh::Degrees& degrees, Precision precision = Precision::kFp64) const {
    return parity::plan_of(parity::gpt2_model(), {"", degrees}, precision, folder_ / "text.txt");
  }

  training::RunResult run(const Plan& plan, training::TrainOptions options = {}) const {
    training::RunResult result;
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      options.threads = 1;
      if (!options.steps) options.steps = 4;
      training::RunResult mine = training::train(plan, world, options);
      if (world.rank() == 0) result = std::move(mine);
    });
    return result;
  }

  // What each rank threw; "" for one that ended well.
  std::vector<std::string> errors(const Plan& plan, const training::TrainOptions& options,
                                  std::vector<int>* culprits = nullptr) const {
    std::vector<std::string> texts(static_cast<size_t>(plan.degrees.world()));
    if (culprits != nullptr) culprits->assign(texts.size(), -1);
    std::mutex mutex;
    jobs::run_ranks(static_cast<int>(texts.size()), [&](comm::Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      training::TrainOptions mine = options;
      mine.threads = 1;
      std::string failed_in;
      mine.failed_in = &failed_in;
      try {
        training::train(plan, world, mine);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        texts[rank] = failed_in + ": " + error.what();
        const auto* comm = dynamic_cast<const comm::CommError*>(&error);
        if (culprits != nullptr && comm != nullptr) (*culprits)[rank] = comm->culprit;
      }
    });
    return texts;
  }

  const ScratchFolder& folder() const { return folder_; }

 private:
  ScratchFolder folder_;
};

int lines_of(const std::string& path) {
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

}  // namespace

TEST_CASE("the same plan gives bitwise the same losses twice") {
  const Bench bench;
  const Plan plan = bench.plan({.pipeline = 2, .shard = 2}, Precision::kFp32);
  CHECK(bench.run(plan).losses == bench.run(plan).losses);
}

TEST_CASE("gradient accumulation: 12 microbatches of 1 are 1 microbatch of 12") {
  const Bench bench;
  std::vector<double> reference;
  for (const int64_t microbatches : {1, 4, 12}) {
    Plan plan = bench.plan({});
    plan.job.training.microbatches = microbatches;
    plan.job.training.micro_batch = 12 / microbatches;
    const std::vector<double> losses = bench.run(plan).losses;
    if (reference.empty()) reference = losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      CHECK(std::abs(losses[i] - reference[i]) <= 1e-12 * reference[i]);
    }
  }
}

TEST_CASE("placement changes who computes, not what is computed") {
  const Bench bench;
  // The norm adds the squares of all ranks in rank order, which is that of the placement: it, and
  // what is clipped by it, is equal to rounding. Everything else is added in groups, whose order is
  // that of the degrees.
  for (const double clipping : {0.0, 1.0}) {
    training::RunResult reference;
    for (const char* placement : {"cluster", "spread", "PTD", "TDP"}) {
      CAPTURE(clipping);
      CAPTURE(std::string(placement));
      Plan plan = bench.plan({.pipeline = 2, .tensor = 2, .shard = 2});
      plan.job.parallel.placement_strategy = placement;
      plan.job.training.optimizer.gradient_clipping = clipping;
      const training::RunResult result = bench.run(plan);
      if (reference.losses.empty()) reference = result;
      if (clipping == 0) CHECK(result.losses == reference.losses);
      REQUIRE(result.losses.size() == reference.losses.size());
      for (size_t i = 0; i < result.losses.size(); ++i) {
        CHECK(result.losses[i] == doctest::Approx(reference.losses[i]).epsilon(1e-14));
        CHECK(result.grad_norms[i] == doctest::Approx(reference.grad_norms[i]).epsilon(1e-14));
      }
    }
    if (clipping > 0) CHECK(reference.grad_norms.front() > clipping);
  }
}

TEST_CASE("active_microbatches changes the order, not the losses") {
  const Bench bench;
  Plan plan = bench.plan({.pipeline = 2});
  const std::vector<double> reference = bench.run(plan).losses;
  plan.job.parallel.active_microbatches = 1;
  CHECK(bench.run(plan).losses == reference);
}

TEST_CASE("a run leaves one line a step, a report and the weights") {
  const Bench bench;
  training::TrainOptions options;
  options.run_dir = bench.folder() / "run";
  const training::RunResult result = bench.run(bench.plan({.tensor = 2}), options);
  CHECK(result.losses.size() == 4);
  CHECK(result.ranks.size() == 2);
  CHECK(lines_of(bench.folder() / "run/metrics.jsonl") == 4);
  CHECK(std::filesystem::exists(bench.folder() / "run/report.json"));
  CHECK(std::filesystem::exists(bench.folder() / "run/weights/model.safetensors"));
  CHECK(std::filesystem::exists(bench.folder() / "run/weights/config.json"));
}

TEST_CASE("a run that fits in its memory saves there too, however large the vocabulary") {
  const Bench bench;
  Plan plan = bench.plan({.tensor = 4}, Precision::kFp32);
  plan.job.model.vocab_size = 50257;
  plan.job.training.data_tokens = TokenKind::kBytes;
  plan.job.training.sequence_length = 8;
  plan.job.training.micro_batch = plan.job.training.microbatches = 1;
  plan.job.training.global_batch = 1;
  training::TrainOptions options;
  options.steps = 1;
  int64_t peak = 0;
  for (const record::RankMeasurements& rank : bench.run(plan, options).ranks) {
    peak = std::max(peak, rank.peak.bytes);
  }
  plan.job.cluster.memory_per_process_bytes = peak;
  options.run_dir = bench.folder() / "run";
  bench.run(plan, options);
  CHECK(std::filesystem::file_size(bench.folder() / "run/weights/model.safetensors") >
        50257 * 48 * 4);
}

TEST_CASE("a plan that the engine cannot run is refused by the names of its settings") {
  const Bench bench;
  Plan plan = bench.plan({.shard = 2});
  plan.job.training.compiled = true;
  plan.job.training.fused_loss = true;
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    CHECK_THROWS_WITH_AS(training::train(plan, world, {}),
                         "the engine cannot run this plan:\n"
                         "  training.fused_loss: true (the engine has its own loss kernels)\n"
                         "  training.compiled: true (the engine is compiled C++ and does not use "
                         "torch.compile)",
                         ConfigError);
  });
}

TEST_CASE("held-out text is evaluated when it is due, alike in every layout, and trains nothing") {
  const Bench bench;
  double expected = 0;
  for (const mesh::Degrees& degrees : {mesh::Degrees{}, mesh::Degrees{.pipeline = 2, .shard = 2}}) {
    Plan plan = bench.plan(degrees);
    plan.job.training.evaluation.every_steps = 3;
    plan.job.training.evaluation.samples = 24;
    training::TrainOptions options;
    options.steps = 4;
    std::vector<int64_t> evaluated;
    std::mutex mutex;
    options.on_step = [&](const record::StepMetrics& metrics) {
      const std::lock_guard lock(mutex);
      if (metrics.evaluation_loss) evaluated.push_back(metrics.step);
    };
    const training::RunResult result = bench.run(plan, options);
    CHECK(evaluated.size() == static_cast<size_t>(2 * plan.degrees.world()));
    CHECK(std::count(evaluated.begin(), evaluated.end(), 3) == plan.degrees.world());
    CHECK(std::count(evaluated.begin(), evaluated.end(), 4) == plan.degrees.world());
    REQUIRE(result.run.evaluation_loss);
    if (expected == 0) expected = *result.run.evaluation_loss;
    CHECK(*result.run.evaluation_loss == doctest::Approx(expected).epsilon(1e-12));
    CHECK(expected > 1);
    CHECK(expected < 6);
  }
}

TEST_CASE("a plan without steps is for planning only") {
  const Bench bench;
  Plan plan = bench.plan({});
  plan.job.training.steps = 0;
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    CHECK_THROWS_WITH_AS(training::train(plan, world, {}),
                         "training.steps is 0, so the job can be planned but not trained: set "
                         "training.steps to at least 1",
                         ConfigError);
  });
}

TEST_CASE("the quickstart's limit refuses plain data parallelism") {
  const Bench bench;
  const JobSpec job =
      jobfile::read_job({jobfile::load_job_source(SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml")});
  Plan plan = bench.plan({.replica = 4}, Precision::kFp32);
  plan.job.model = job.model;
  plan.job.cluster.memory_per_process_bytes = job.cluster.memory_per_process_bytes;
  plan.job.training.sequence_length = job.training.sequence_length;
  plan.job.training.global_batch = job.training.global_batch;
  plan.job.training.micro_batch = plan.job.training.microbatches = 1;
  std::vector<int> culprits;
  const auto texts = bench.errors(plan, {}, &culprits);
  const auto culprit =
      static_cast<size_t>(std::find(culprits.begin(), culprits.end(), -1) - culprits.begin());
  REQUIRE(culprit < 4);
  const std::string& text = texts[culprit];
  INFO(text);
  CHECK(text.starts_with("step 1: "));
  CHECK(text.find("rank " + std::to_string(culprit) + ": out of memory in step 1: ") !=
        std::string::npos);
  CHECK(text.find(" of 65011712 in use (weights 1") != std::string::npos);
  for (const char* part :
       {": requested ", ", gradients 1", ", optimizer 2", ", activations ",
        "; to reduce optimizer, the largest category: set parallel.shard_optimizer_state: true"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("a plan for another number of ranks is refused") {
  const Bench bench;
  jobs::run_ranks(3, [&](comm::Communicator& world) {
    CHECK_THROWS_WITH_AS(training::train(bench.plan({.tensor = 2}), world, {}),
                         "the plan has 2 ranks, but 3 were started", ConfigError);
  });
}

TEST_CASE("when a rank throws, its peers blame that rank") {
  const Bench bench;
  training::TrainOptions options;
  options.steps = 4;
  options.fault = training::InjectedFault{
      .rank = 1, .step = 3, .kind = training::InjectedFault::Kind::kException};
  std::vector<int> culprits;
  const auto texts = bench.errors(bench.plan({.pipeline = 2, .tensor = 2}), options, &culprits);
  CHECK(texts[1] == "step 3: start: injected exception on rank 1 at step 3");
  CHECK(culprits == std::vector<int>{1, -1, 1, 1});
  for (const size_t rank : {0, 2, 3}) {
    INFO(texts[rank]);
    CHECK(texts[rank].ends_with(
        "rank 1 aborted: step 3: start: injected exception on rank 1 at step 3"));
  }
}

TEST_CASE("a rank beyond its memory limit says where, and its peers blame it") {
  const Bench bench;
  Plan plan = bench.plan({.pipeline = 2});
  training::TrainOptions options;
  options.steps = 1;
  int64_t peak = 0;
  for (const record::RankMeasurements& rank : bench.run(plan, options).ranks) {
    peak = std::max(peak, rank.peak.bytes);
  }
  plan.job.cluster.memory_per_process_bytes = peak - 1;
  std::vector<int> culprits;
  const auto texts = bench.errors(plan, options, &culprits);
  const size_t culprit = culprits[0] == -1 ? 0 : 1;
  INFO(texts[culprit]);
  CHECK(culprits[1 - culprit] == static_cast<int>(culprit));
  CHECK(texts[culprit].find("rank " + std::to_string(culprit)) != std::string::npos);
  CHECK(texts[culprit].find("step 1: ") == 0);
}

TEST_CASE("a loss that is no number stops all ranks alike, with the step") {
  const Bench bench;
  Plan plan = bench.plan({.tensor = 2}, Precision::kFp32);
  plan.job.training.optimizer.learning_rate = 1e30;
  plan.job.training.optimizer.min_learning_rate = 1e30;
  plan.job.training.optimizer.warmup_steps = 0;
  training::TrainOptions options;
  options.steps = 4;
  const auto texts = bench.errors(plan, options);
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0].starts_with("step 2: step: step 2: the loss is "));
  CHECK(
      texts[0].ends_with(", microbatch 0. Lower training.optimizer.learning_rate "
                         "(now 1e+30) or raise training.optimizer.warmup_steps"));
  CHECK(texts[0].find("; training stopped; first non-finite value: the forward output of layer ") !=
        std::string::npos);
}

}  // namespace smp
