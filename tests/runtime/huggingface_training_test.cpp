#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "files_and_errors.h"
#include "huggingface_golden.h"
#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/layers.h"
#include "smp/runtime/huggingface_weights.h"
#include "smp/runtime/safetensors.h"
#include "smp/runtime/trainer.h"
#include "state_weights_folder.h"
#include "tolerances.h"

// Whole runs that start from a folder of transformers, in several layouts.
namespace smp {
namespace {

using parity::LayoutCase;

using Bytes = std::map<std::string, std::vector<std::byte>>;

// Every tensor of a file of weights.
void add_tensors(const std::string& path, Bytes& tensors) {
  const SafetensorsReader reader(path);
  for (const SafetensorsEntry& entry : reader.header().entries) {
    std::vector<std::byte>& bytes = tensors[entry.name];
    bytes.resize(static_cast<size_t>(entry.bytes()));
    reader.read(entry, bytes.data());
  }
}

Bytes tensors_of(const std::string& dir) {
  Bytes tensors;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model") && name.ends_with(".safetensors")) {
      add_tensors(entry.path(), tensors);
    }
  }
  return tensors;
}

// One step, which changes nothing.
double loss_from(const std::string& dir, const LayoutCase& layout, const std::string& text,
                 const std::string& run_dir) {
  Plan plan = parity::plan_of(test::model_of_folder(dir), layout, Precision::kFp32, text);
  plan.job.training.init_from = dir;
  OptimizerSpec& optimizer = plan.job.training.optimizer;
  optimizer.learning_rate = optimizer.min_learning_rate = 0;
  double loss = 0;
  run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
    TrainOptions options;
    options.run_dir = run_dir;
    options.steps = 1;
    options.threads = 1;
    const RunResult result = train(plan, world, options);
    if (world.rank() == 0) loss = result.losses.front();
  });
  return loss;
}

}  // namespace

TEST_CASE("training starts from each model of transformers in any layout, and saves what it read") {
  const LayoutCase layouts[] = {
      {"one rank", {}},
      {"p2", {.pipeline = 2}},
      {"t2", {.tensor = 2}},
      {"d2 ZeRO-3", {.shard = 2}, PipelineKind::kInterleaved, Sharding::kParameters},
      {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
  };
  const ScratchFolder folder;
  const std::string text = folder / "text.txt";
  std::ofstream(text) << parity::sample_text(4000);
  for (const char* name : test::kGoldenModels) {
    const std::string dir = test::golden_folder(name);
    double expected = 0;
    for (const LayoutCase& layout : layouts) {
      INFO(std::string(name) << " " << layout.name);
      const ScratchFolder run;
      const double loss = loss_from(dir, layout, text, run.path());
      if (expected == 0) expected = loss;
      CHECK(std::abs(loss - expected) <= tolerance::kParityF32.loss * expected);
      CHECK((tensors_of(run / "weights") == tensors_of(dir)));
    }
    // And the config.json that it saves is read as the same model.
    const ModelSpec model = test::model_of_folder(dir);
    const std::string saved = huggingface_config(model, DType::kF32);
    CHECK_NOTHROW(check_huggingface_config("saved", saved, model));
    std::ofstream(folder / "config.json") << saved;
    const ModelSpec again = test::model_of_folder(folder.path());
    CHECK(huggingface_config(again, DType::kF32) == saved);
  }
}

}  // namespace smp
