#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "files_and_errors.h"
#include "parity/layouts.h"
#include "runtime/huggingface_golden.h"
#include "runtime/state_weights_folder.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/training/trainer.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "smp/tensorfiles/safetensors/number_formats.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "tolerances.h"

// Whole runs that start from a folder of transformers, in several layouts.
namespace smp {
namespace {

using parity::LayoutCase;

using Bytes = std::map<std::string, std::vector<std::byte>>;

// Every tensor of a file of weights.
void add_tensors(const std::string& path, Bytes& tensors) {
  const safetensors::SafetensorsReader reader(path);
  for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
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
  plan.job.training.data_tokens = TokenKind::kBytes;
  plan.job.model.router_correction_rate = 0;
  OptimizerSpec& optimizer = plan.job.training.optimizer;
  optimizer.learning_rate = optimizer.min_learning_rate = 0;
  double loss = 0;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
    training::TrainOptions options;
    options.run_dir = run_dir;
    options.steps = 1;
    options.threads = 1;
    const training::RunResult result = training::train(plan, world, options);
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
    const std::string saved = huggingface::huggingface_config(model, DType::kF32);
    CHECK_NOTHROW(huggingface::check_huggingface_config("saved", saved, model));
    std::filesystem::create_directory(folder / name);
    std::ofstream(folder / name + "/config.json") << saved;
    const ModelSpec again = test::model_of_folder(folder / name);
    CHECK(huggingface::huggingface_config(again, DType::kF32) == saved);
  }
}

TEST_CASE("weights that came as bf16 go as bf16, with tokenizer, settings and token ids") {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  const std::string dir = folder / "start";
  fs::create_directory(dir);
  const std::string golden = test::golden_folder("qwen3");
  const std::string text = folder / "text.txt";
  std::ofstream(text) << parity::sample_text(4000);
  text::OrderedJson config = text::OrderedJson::parse(text_of(golden + "/config.json"));
  config["bos_token_id"] = 151643;
  config["eos_token_id"] = {151645, 151643};
  std::ofstream(dir + "/config.json") << config.dump();
  {
    const safetensors::SafetensorsReader reader(golden + "/model.safetensors");
    std::vector<safetensors::SafetensorsEntry> entries = reader.header().entries;
    for (safetensors::SafetensorsEntry& entry : entries) entry.dtype = DType::kBF16;
    safetensors::SafetensorsWriter writer(dir + "/model.safetensors", entries);
    for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
      std::vector<std::byte> whole(static_cast<size_t>(entry.bytes()));
      reader.read(entry, whole.data());
      const int64_t count = entry.bytes() / bytes_of(entry.dtype);
      std::vector<std::byte> half(static_cast<size_t>(2 * count));
      safetensors::convert_numbers(entry.dtype, whole.data(), count, DType::kBF16, half.data(), 1);
      writer.append(entry.name, half.data(), 2 * count);
    }
    writer.finish();
  }
  const std::map<std::string, std::string> beside = {
      {"tokenizer.json", "{\"version\": \"1.0\"}"},
      {"tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}"},
      {"merges.txt", "a b\n"},
      {"vocab.json", "{}"},
      {"special_tokens_map.json", "{}"},
      {"added_tokens.json", "{}"},
      {"chat_template.jinja", "{{ messages }}"},
      {"generation_config.json", "{\"temperature\": 0.6}"}};
  for (const auto& [name, content] : beside) std::ofstream(dir + "/" + name) << content;

  const auto train_from = [&](const LayoutCase& layout, std::optional<Precision> as,
                              const std::string& run_dir, bool forget_start) {
    Plan plan = parity::plan_of(test::model_of_folder(dir), layout, Precision::kFp32, text);
    plan.job.training.init_from = dir;
    plan.job.training.data_tokens = TokenKind::kBytes;
    plan.job.training.save_weights_as = as;
    plan.job.training.optimizer.learning_rate = plan.job.training.optimizer.min_learning_rate = 0;
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      training::TrainOptions options;
      options.run_dir = run_dir;
      options.steps = 1;
      options.threads = 1;
      if (forget_start && world.rank() == 0) {
        options.on_step = [&](const record::StepMetrics&) { fs::rename(dir, dir + ".away"); };
      }
      training::train(plan, world, options);
    });
  };
  const ScratchFolder one, two, gone;
  train_from(
      {"t2 ZeRO-3", {.tensor = 2, .shard = 2}, PipelineKind::kInterleaved, Sharding::kParameters},
      Precision::kBf16, one.path(), false);
  CHECK((tensors_of(one / "weights") == tensors_of(dir)));  // to the bit
  const text::OrderedJson saved = text::OrderedJson::parse(text_of(one / "weights/config.json"));
  CHECK(saved.at("dtype") == "bfloat16");
  CHECK(saved.at("torch_dtype") == "bfloat16");
  CHECK(saved.at("bos_token_id") == 151643);
  CHECK(saved.at("eos_token_id") == config.at("eos_token_id"));
  for (const auto& [name, content] : beside) {
    CHECK(text_of(one / ("weights/" + name)) == content);
  }
  train_from({"one rank", {}}, std::nullopt, two.path(), false);
  CHECK(text::OrderedJson::parse(text_of(two / "weights/config.json")).at("dtype") == "float32");
  // Whoever moves the folder away in the meantime keeps the trained weights.
  train_from({"one rank", {}}, std::nullopt, gone.path(), true);
  CHECK((tensors_of(gone / "weights") == tensors_of(two / "weights")));
  CHECK(!fs::exists(gone / "weights/tokenizer.json"));
}

}  // namespace smp
