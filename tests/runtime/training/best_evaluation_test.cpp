#include "training/best_evaluation.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "runtime/short_runs.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/checkpoint/checkpoint_shards.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"

// Which evaluation was the best, what of it is kept, and when a run has waited long enough.

namespace smp {
namespace {

using parity::LayoutCase;
using test::options_of;
using test::resumed;
using test::ShortRuns;

constexpr int64_t kSteps = 8;

// Of a run that learns faster and faster: its losses go down, then up.
struct Watched {
  std::vector<double> evaluated;  // after each step
  training::RunResult result;

  int64_t best_step() const {
    return std::min_element(evaluated.begin(), evaluated.end()) - evaluated.begin() + 1;
  }
};

Plan unsteady(const ShortRuns& runs, const LayoutCase& layout) {
  Plan plan = runs.plan(layout);
  plan.job.training.optimizer.learning_rate = 1;
  plan.job.training.optimizer.warmup_steps = 50;
  plan.job.training.optimizer.schedule = LearningRateSchedule::kConstant;
  EvaluationSpec& evaluation = plan.job.training.evaluation;
  evaluation.every_steps = 1;
  evaluation.samples = 12;
  evaluation.keep_best = true;
  plan.job.training.checkpoint = {.every_steps = 1, .keep = 1};
  return plan;
}

Watched run(const Plan& plan, training::TrainOptions options) {
  Watched watched;
  std::mutex mutex;
  options.on_step = [&](const record::StepMetrics& metrics) {
    const std::scoped_lock lock(mutex);
    if (metrics.evaluation_loss && metrics.step > static_cast<int64_t>(watched.evaluated.size()))
      watched.evaluated.push_back(*metrics.evaluation_loss);
  };
  watched.result = ShortRuns::run(plan, options);
  return watched;
}

// Writes a checkpoint of one rank again, without what it says of evaluations.
void forget_evaluations(const std::string& path) {
  std::ifstream file(path + "/manifest.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const checkpoint::Manifest manifest = checkpoint::parse_manifest(path, text);
  std::vector<std::vector<std::byte>> memory;
  std::vector<safetensors::TensorPiece> pieces;
  for (const checkpoint::SavedFile& saved : manifest.files) {
    for (const checkpoint::SavedTensor& tensor : saved.tensors) {
      if (tensor.name.starts_with("evaluation.")) continue;
      const int64_t cols = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
      memory.emplace_back(tensor.bytes());
      pieces.push_back({tensor.name,
                        tensor.shape,
                        tensor.dtype,
                        {0, tensor.shape[0], 0, cols},
                        0,
                        tensor.elements(),
                        memory.back().data()});
    }
  }
  checkpoint::CheckpointReader reader(path);
  for (const safetensors::TensorPiece& piece : pieces) reader.read(piece);
  std::filesystem::remove_all(path);
  checkpoint::CheckpointStore store(std::filesystem::path(path).parent_path());
  checkpoint::RankShards shards(0, pieces);
  shards.copy();
  shards.write(store.begin(manifest.step), manifest.step, files::system_file_calls());
  store.commit(manifest.step, 1, 10, manifest.training);
}

EvaluationSpec waiting(int64_t patience, double min_improvement = 0) {
  EvaluationSpec spec;
  spec.patience = patience;
  spec.min_improvement = min_improvement;
  return spec;
}

std::string name_of_step(int64_t step) { return fmt::format("step-{:08}", step); }

}  // namespace

TEST_CASE("an evaluation is the best when no earlier one was as low") {
  training::BestEvaluation best({});
  CHECK(best.take(10, 3.0));
  CHECK(!best.take(20, 3.0));
  CHECK(best.take(30, 2.5));
  CHECK(!best.take(40, std::nan("")));
  CHECK(best.state().loss == 2.5);
  CHECK(best.state().step == 30);
  CHECK(best.state().without == 1);
  CHECK(!best.is_exhausted());  // without patience a run waits for ever
}

TEST_CASE("patience ends after so many evaluations without improvement in a row") {
  training::BestEvaluation best(waiting(2));
  for (const double loss : {3.0, 3.1, 2.9, 2.95, std::nan("")}) {
    CHECK(!best.is_exhausted());
    best.take(1, loss);
  }
  CHECK(best.is_exhausted());
}

TEST_CASE("small steps count together once they are min_improvement, and are the best each") {
  training::BestEvaluation best(waiting(3, 0.25));
  CHECK(best.take(1, 3.0));
  CHECK(best.take(2, 2.875));
  CHECK(best.state().without == 1);
  CHECK(best.take(3, 2.75));
  CHECK(best.state().without == 0);
  CHECK(best.take(4, 2.625));
  CHECK(best.state().without == 1);
  training::BestEvaluation restored(waiting(1, 0.25));
  restored.restore(best.state());
  CHECK(restored.is_exhausted());
}

TEST_CASE("keep_best: the checkpoint of the lowest evaluation loss stays, whatever is removed") {
  const ShortRuns runs;
  for (const LayoutCase& layout :
       {LayoutCase{"one rank", {}}, LayoutCase{"p2 z2", {.pipeline = 2, .shard = 2}}}) {
    INFO(layout.name);
    const ScratchFolder folder;
    const Watched watched = run(unsteady(runs, layout), options_of(folder.path(), kSteps));
    REQUIRE(watched.best_step() > 1);
    REQUIRE(watched.best_step() < kSteps);  // or it would stay anyway
    const std::string folder_of_checkpoints = folder / "checkpoints";
    const std::string best = name_of_step(watched.best_step());
    CHECK(runinfo::best_checkpoint(folder_of_checkpoints) == best);
    CHECK(runinfo::whole_checkpoints(folder_of_checkpoints) ==
          std::vector<std::string>{best, name_of_step(kSteps)});
    CHECK(watched.result.run.best_step == watched.best_step());
    CHECK(watched.result.run.best_loss == watched.evaluated[watched.best_step() - 1]);
  }
}

TEST_CASE("keep_best saves at evaluations, where nothing else does") {
  const ShortRuns runs;
  const ScratchFolder folder;
  Plan plan = unsteady(runs, {"", {}});
  plan.job.training.checkpoint = {};
  const Watched watched = run(plan, options_of(folder.path(), kSteps));
  CHECK(runinfo::best_checkpoint(folder / "checkpoints") == name_of_step(watched.best_step()));
  CHECK(checkpoint::CheckpointStore(folder / "checkpoints").latest() ==
        name_of_step(watched.best_step()));
}

TEST_CASE("a run that goes on knows the best so far, in another layout too") {
  const ShortRuns runs;
  const Plan plan = unsteady(runs, {"", {}});
  const ScratchFolder whole;
  const Watched expected = run(plan, options_of(whole.path(), kSteps));
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    INFO(stop);
    const ScratchFolder parts;
    run(plan, options_of(parts.path(), stop));
    const Plan other = unsteady(runs, {"t2", {.tensor = 2}});
    const Watched rest = run(other, resumed(parts.path(), kSteps));
    CHECK(rest.result.run.best_step == expected.best_step());
    CHECK(runinfo::best_checkpoint(parts / "checkpoints") == name_of_step(expected.best_step()));
  }
}

TEST_CASE("a run that goes on from before its best evaluation has no best until the next") {
  const ShortRuns runs;
  const ScratchFolder folder;
  Plan plan = unsteady(runs, {"", {}});
  plan.job.training.checkpoint.keep = kSteps;
  const Watched whole = run(plan, options_of(folder.path(), kSteps));
  REQUIRE(whole.best_step() > 1);
  REQUIRE(whole.best_step() < kSteps);
  training::TrainOptions options = resumed(folder.path(), whole.best_step());
  SUBCASE("the earlier best is there") {
    options.resume_step = 1;
    options.steps = 1;
    run(plan, options);
    CHECK(runinfo::best_checkpoint(folder / "checkpoints") == name_of_step(1));
  }
  SUBCASE("it was removed") {
    options.resume_step = whole.best_step() + 1;
    options.steps = whole.best_step() + 1;
    std::filesystem::remove_all(folder / ("checkpoints/" + name_of_step(whole.best_step())));
    run(plan, options);
    CHECK(!runinfo::best_checkpoint(folder / "checkpoints"));
    CHECK(!std::filesystem::exists(folder / "checkpoints/best"));
  }
}

TEST_CASE("patience ends the run with its weights, and it stays ended") {
  const ShortRuns runs;
  const ScratchFolder folder;
  Plan plan = runs.plan({"p2", {.pipeline = 2}});
  plan.job.training.evaluation = waiting(2, 100);
  plan.job.training.evaluation.every_steps = 2;
  plan.job.training.evaluation.samples = 12;
  plan.job.training.checkpoint = {.every_steps = 50, .keep = 1};
  const training::RunResult ended = ShortRuns::run(plan, options_of(folder.path(), 100));
  CHECK(ended.losses.size() == 6);  // the first evaluation is an improvement: of nothing
  CHECK(!ended.ended_on_request);
  REQUIRE(ended.run.ended_early);
  CHECK(ended.run.ended_early->starts_with(
      "at step 6 of 100: 2 evaluations in a row without improvement "
      "(training.evaluation.patience); the lowest loss, "));
  CHECK(std::filesystem::exists(folder / "weights/trainer_state.json"));
  CHECK(checkpoint::CheckpointStore(folder / "checkpoints").latest() ==
        name_of_step(6));  // the last step

  const training::RunResult again = ShortRuns::run(plan, resumed(folder.path(), 100));
  CHECK(again.first_step == 6);
  CHECK(again.losses.empty());
  CHECK(again.run.ended_early == ended.run.ended_early);

  plan.job.training.evaluation.patience = 3;
  const training::RunResult further = ShortRuns::run(plan, resumed(folder.path(), 100));
  CHECK(further.losses.size() == 2);
}

TEST_CASE("a checkpoint from before runs knew their best evaluation goes on") {
  const ShortRuns runs;
  const ScratchFolder folder;
  Plan plan = unsteady(runs, {"", {}});
  plan.job.training.checkpoint.every_steps = 2;
  run(plan, options_of(folder.path(), 2));
  const std::string path = folder / "checkpoints/step-00000002";
  forget_evaluations(path);
  CHECK(checkpoint::CheckpointReader(path).find("evaluation.best_step") == nullptr);
  const Watched rest = run(plan, resumed(folder.path(), kSteps));
  CHECK(rest.result.first_step == 2);
  CHECK(rest.result.run.best_step > 2);
}

}  // namespace smp
