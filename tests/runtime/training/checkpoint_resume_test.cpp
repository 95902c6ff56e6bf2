#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "files_and_errors.h"
#include "runtime/short_runs.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "tolerances.h"
#include "worst.h"

// Whole runs, with ranks as threads, that save, end, and go on: in the same layout bit by bit as
// if they had never ended, in another one as near as layouts are to each other.
namespace smp {
namespace {

namespace fs = std::filesystem;
using namespace smp::test;
using parity::LayoutCase;

constexpr int64_t kSaved = 3;  // steps before the checkpoint
constexpr int64_t kSteps = 6;

// The small GPT-2, saved every kSaved steps.
class Bench : public ShortRuns {
 public:
  Plan plan(const LayoutCase& layout, Precision precision = Precision::kFp64) const {
    Plan plan = ShortRuns::plan(layout, precision);
    plan.job.training.checkpoint.every_steps = kSaved;
    return plan;
  }
};

std::map<std::string, std::vector<double>> weights_of(const std::string& run_dir) {
  const safetensors::SafetensorsReader reader(run_dir + "/weights/model.safetensors");
  std::map<std::string, std::vector<double>> weights;
  for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
    std::vector<double>& values = weights[entry.name];
    values.resize(static_cast<size_t>(entry.bytes() / 8));
    reader.read(entry, values.data());
  }
  return weights;
}

// The largest distance of a tensor, by norm.
double distance(const std::string& run_dir, const std::string& reference) {
  double worst = 0;
  const auto expected = weights_of(reference);
  for (const auto& [name, values] : weights_of(run_dir)) {
    const std::vector<double>& right = expected.at(name);
    if (name.ends_with("attn.c_attn.bias")) continue;  // see tolerances.h about the keys' biases
    double difference = 0, norm = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      difference += (values[i] - right[i]) * (values[i] - right[i]);
      norm += right[i] * right[i];
    }
    worst = smp::testing::worst_of(worst, std::sqrt(difference / norm));
  }
  return worst;
}

// Who saves, and who goes on.
using Pairs = std::vector<std::pair<const char*, std::vector<const char*>>>;

// Holds each pair of `layouts` against a run of "one" that never ended. Gives how many there were.
int check_pairs(const std::map<std::string, LayoutCase>& layouts, const Pairs& pairs,
                const std::function<Plan(const LayoutCase&)>& plan_of) {
  const ScratchFolder whole;
  const training::RunResult expected =
      ShortRuns::run(plan_of(layouts.at("one")), options_of(whole.path(), kSteps));
  int count = 0;
  double worst_loss = 0, worst_weight = 0;
  for (const auto& [from, targets] : pairs) {
    const ScratchFolder first;
    ShortRuns::run(plan_of(layouts.at(from)), options_of(first.path(), kSaved));
    for (const char* to : targets) {
      INFO(from << " to " << std::string(to));
      ++count;
      const ScratchFolder second;
      fs::copy(first / "checkpoints", second / "checkpoints", fs::copy_options::recursive);
      const training::RunResult result =
          ShortRuns::run(plan_of(layouts.at(to)), resumed(second.path(), kSteps));
      REQUIRE(result.losses.size() == kSteps - kSaved);
      for (size_t i = 0; i < result.losses.size(); ++i) {
        const double right = expected.losses[kSaved + i];
        worst_loss = smp::testing::worst_of(worst_loss, std::abs(result.losses[i] - right) / right);
      }
      worst_weight = smp::testing::worst_of(worst_weight, distance(second.path(), whole.path()));
      CHECK(worst_loss <= tolerance::kParityF64.loss);
      CHECK(worst_weight <= tolerance::kParityF64.weight);
    }
  }
  MESSAGE(
      fmt::format("{} pairs, fp64: loss {:.1e}, weights {:.1e}", count, worst_loss, worst_weight));
  return count;
}

}  // namespace

TEST_CASE("resumed under the same layout, a run is bitwise the one that was never interrupted") {
  const Bench bench;
  const LayoutCase layouts[] = {{"one rank", {}},
                                {"d2 ZeRO-1", {.shard = 2}},
                                {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
                                {"p2d2 ZeRO-3",
                                 {.pipeline = 2, .shard = 2},
                                 PipelineKind::kInterleaved,
                                 Sharding::kParameters},
                                {.name = "d2 ZeRO-3, on the host",
                                 .degrees = {.shard = 2},
                                 .sharding = Sharding::kParameters,
                                 .offload_optimizer = true,
                                 .offload_parameters = true}};
  for (const LayoutCase& layout : layouts) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp64}) {
      INFO(layout.name);
      const ScratchFolder whole, parts;
      const Plan plan = bench.plan(layout, precision);
      const training::RunResult expected = bench.run(plan, options_of(whole.path(), kSteps));
      bench.run(plan, options_of(parts.path(), kSaved));
      const training::RunResult result = bench.run(plan, resumed(parts.path(), kSteps));
      CHECK(result.first_step == kSaved);
      REQUIRE(result.losses.size() == kSteps - kSaved);
      for (size_t i = 0; i < result.losses.size(); ++i) {
        CHECK(result.losses[i] == expected.losses[kSaved + i]);
        CHECK(result.grad_norms[i] == expected.grad_norms[kSaved + i]);
      }
      const std::string weights = "weights/model.safetensors";
      CHECK(text_of(parts / weights) == text_of(whole / weights));
      CHECK(checkpoint::CheckpointStore(parts / "checkpoints").latest() == "step-00000006");
    }
  }
}

TEST_CASE("what one layout saves another resumes: 30 pairs") {
  const Bench bench;
  const auto interleaved = PipelineKind::kInterleaved;
  const auto small_whole = [&](int64_t threshold) {
    LayoutCase layout{"", {.shard = 4}, interleaved, Sharding::kParameters};
    layout.param_persistence_threshold = threshold;
    return layout;
  };
  const std::map<std::string, LayoutCase> layouts = {
      {"one", {"", {}}},
      {"p2", {"", {.pipeline = 2}}},
      {"p3", {"", {.pipeline = 3}}},
      {"p4", {"", {.pipeline = 4}}},
      {"t2", {"", {.tensor = 2}}},
      {"t4", {"", {.tensor = 4}}},
      {"d2", {"", {.replica = 2}}},
      {"z2", {"", {.shard = 2}}},
      {"z4", {"", {.shard = 4}}},
      {"z2r2", {"", {.shard = 2, .replica = 2}}},
      {"p2z2", {"", {.pipeline = 2, .shard = 2}}},
      {"t2r2", {"", {.tensor = 2, .replica = 2}}},
      {"t2p2z2", {"", {.pipeline = 2, .tensor = 2, .shard = 2}}},
      {"t4r2", {"", {.tensor = 4, .replica = 2}}},
      {"p2z4", {"", {.pipeline = 2, .shard = 4}}},
      {"z2 ZeRO-2", {"", {.shard = 2}, interleaved, Sharding::kGradients}},
      {"z4 ZeRO-3", {"", {.shard = 4}, interleaved, Sharding::kParameters}},
      {"z4 small whole", small_whole(500)},
      {"z4 all whole", small_whole(1 << 30)},
  };
  // ZeRO-3 with other thresholds of what persists.
  const Pairs pairs = {
      {"z4 small whole", {"z4 ZeRO-3", "z4 all whole"}},
      {"z4 all whole", {"z4 small whole"}},
      {"t2p2z2", {"p3", "one", "z4", "t4", "z4 ZeRO-3"}},  // 8 ranks to 3, 1, 4
      {"p3", {"t2p2z2", "p2z4", "t4r2"}},                  // 3 ranks to 8
      {"z4", {"d2", "one", "p4", "z2r2"}},                 // ZeRO-1 to none
      {"d2", {"z2", "t2", "z2 ZeRO-2"}},                   // and back
      {"z4 ZeRO-3", {"d2", "z4", "p3", "t2p2z2"}},
      {"z2 ZeRO-2", {"one"}},
      {"p4", {"t4", "z2"}},          // p to t
      {"t4", {"p2", "z4", "t2r2"}},  // t to p
      {"z2r2", {"p2z2"}},
      {"one", {"p2z4"}},
  };
  CHECK(check_pairs(layouts, pairs, [&](const LayoutCase& layout) { return bench.plan(layout); }) ==
        30);
}

TEST_CASE("AlexNet's layers: what one layout saves another resumes") {
  const auto interleaved = PipelineKind::kInterleaved;
  const std::map<std::string, LayoutCase> layouts = {
      {"one", {"", {}}},
      {"p2", {"", {.pipeline = 2}}},
      {"p3", {"", {.pipeline = 3}}},
      {"t2", {"", {.tensor = 2}}},
      {"t4", {"", {.tensor = 4}}},
      {"z3", {.name = "", .degrees = {.shard = 3}, .microbatches = 2}},  // 12 samples in 6 parts
      {"z4 ZeRO-3", {"", {.shard = 4}, interleaved, Sharding::kParameters}},
      {"t2p2z2", {"", {.pipeline = 2, .tensor = 2, .shard = 2}}},
  };
  const Pairs pairs = {
      {"t2p2z2", {"p3", "one", "z3"}},  // 8 ranks to 3 and 1
      {"p3", {"t2p2z2", "z4 ZeRO-3"}},  // p to shards, and 3 ranks to 8
      {"z4 ZeRO-3", {"t4", "p2"}},     {"t4", {"one", "t2"}}, {"one", {"t4"}},
  };
  const JobSpec digits = digits_job();
  CHECK(check_pairs(layouts, pairs, [&](const LayoutCase& layout) {
          Plan plan = parity::plan_of(digits.model, layout, Precision::kFp64, digits_file());
          plan.job.training.images = digits.training.images;
          plan.job.training.checkpoint.every_steps = kSaved;
          return plan;
        }) == 10);
}

TEST_CASE("a run starts from Hugging Face weights in any layout, to the bit") {
  const Bench bench;
  const ScratchFolder first;
  bench.run(bench.plan({"", {}}, Precision::kFp32), options_of(first.path(), 2));
  const std::string weights = "weights/model.safetensors";
  for (const mesh::Degrees& degrees :
       {mesh::Degrees{}, mesh::Degrees{.pipeline = 2, .tensor = 2, .shard = 2},
        mesh::Degrees{.tensor = 4}}) {
    const ScratchFolder second;
    Plan plan = bench.plan({"", degrees}, Precision::kFp32);
    plan.job.training.init_from = first / "weights";
    plan.job.training.data_tokens = TokenKind::kBytes;
    OptimizerSpec& optimizer = plan.job.training.optimizer;
    optimizer.learning_rate = optimizer.min_learning_rate = 0;  // one step that changes nothing
    bench.run(plan, options_of(second.path(), 1));
    CHECK(text_of(second / weights) == text_of(first / weights));
  }
  Plan other = bench.plan({"", {}}, Precision::kFp32);
  other.job.training.init_from = first / "weights";
  other.job.training.data_tokens = TokenKind::kBytes;
  other.job.model.num_layers = 4;
  const ScratchFolder none;
  CHECK(bench.error(other, options_of(none.path(), 1)) ==
        first / "weights/config.json: n_layer is 5, but this job's model has 4");
}

TEST_CASE("a run that is asked to end saves, ends, and goes on later") {
  const Bench bench;
  const LayoutCase layout{"", {.pipeline = 2, .replica = 2}};
  Plan plan = bench.plan(layout);
  plan.job.training.checkpoint = {};
  const ScratchFolder whole, parts;
  const training::RunResult expected = bench.run(plan, options_of(whole.path(), kSteps));
  CHECK(!fs::exists(whole / "checkpoints"));
  std::atomic<int> asked = 0;
  training::TrainOptions options = options_of(parts.path(), kSteps);
  options.end_requested = [&] { return ++asked > 5; };  // one of four ranks, in the second step
  const training::RunResult first = bench.run(plan, options);
  CHECK(first.ended_on_request);
  CHECK(first.losses.size() == 2);
  CHECK(!fs::exists(parts / "weights"));
  CHECK(checkpoint::CheckpointStore(parts / "checkpoints").list() ==
        std::vector<std::string>{"step-00000002"});
  const training::RunResult second = bench.run(plan, resumed(parts.path(), kSteps));
  CHECK(!second.ended_on_request);
  CHECK(second.losses.back() == expected.losses.back());
  // Each step has one line.
  const std::string metrics = text_of(parts / "metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == kSteps);
}

TEST_CASE("checkpoints by time: when so many minutes have passed, on all ranks alike") {
  const Bench bench;
  Plan plan = bench.plan({"", {.pipeline = 2, .shard = 2}});
  const auto saved_every = [&](double minutes) {
    const ScratchFolder folder;
    plan.job.training.checkpoint = {.every_minutes = minutes, .keep = kSteps};
    bench.run(plan, options_of(folder.path(), 3));
    return checkpoint::CheckpointStore(folder / "checkpoints").list();
  };
  CHECK(saved_every(1e-12) ==
        std::vector<std::string>{"step-00000001", "step-00000002", "step-00000003"});
  CHECK(saved_every(1e6).empty());
}

TEST_CASE("steps that were done again after a resume have one line of metrics") {
  const Bench bench;
  const Plan plan = bench.plan({"", {}});
  const ScratchFolder folder;
  bench.run(plan, options_of(folder.path(), 5));  // saved at 3 and 5
  training::TrainOptions options = resumed(folder.path(), kSteps);
  options.resume_step = 3;
  CHECK(bench.run(plan, options).first_step == 3);
  const std::string metrics = text_of(folder / "metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == kSteps);
}

TEST_CASE("a checkpoint of another training is refused, with all that differs") {
  const Bench bench;
  const ScratchFolder folder;
  bench.run(bench.plan({"", {}}), options_of(folder.path(), kSaved));
  const training::TrainOptions options = resumed(folder.path(), kSteps);
  Plan plan = bench.plan({"", {.tensor = 2}});
  const std::string metrics = text_of(folder / "metrics.jsonl");
  const auto refusal = [&](const std::string& lines) {
    return folder / "checkpoints/step-00000003: the checkpoint belongs to another training:\n  " +
           lines +
           "\nrestore these values, or start a new run in another folder without --resume; "
           "docs/checkpoints.md lists the keys that may change";
  };
  SUBCASE("what no tensor shows") {
    plan.job.model.norm_epsilon = 0.5;
    plan.job.model.mlp = MlpKind::kRelu;
    plan.job.model.attention_dropout = 0.25;
    plan.job.training.optimizer.weight_decay = 0;
    CHECK(bench.error(plan, options) ==
          refusal("model.mlp: gelu in the checkpoint, relu in this job\n"
                  "  model.norm_epsilon: 1e-05 in the checkpoint, 0.5 in this job\n"
                  "  model.attention_dropout: 0 in the checkpoint, 0.25 in this job\n"
                  "  training.optimizer.weight_decay: 0.1 in the checkpoint, 0 in this job"));
  }
  SUBCASE("another width and depth") {
    plan.job.model.vocab_size = 261;
    plan.job.model.num_layers = 4;
    CHECK(bench.error(plan, options) ==
          refusal("model.num_layers: 5 in the checkpoint, 4 in this job\n"
                  "  model.vocab_size: 259 in the checkpoint, 261 in this job"));
  }
  SUBCASE("another batch, seed and precision") {
    plan.job.training.precision = Precision::kFp32;
    plan.job.training.global_batch = 24;
    plan.job.training.micro_batch = 8;
    plan.job.training.seed = 5;
    CHECK(bench.error(plan, options) ==
          refusal("training.global_batch: 12 in the checkpoint, 24 in this job\n"
                  "  training.precision: fp64 in the checkpoint, fp32 in this job\n"
                  "  training.seed: 1234 in the checkpoint, 5 in this job"));
  }
  SUBCASE("other text of the same length") {
    std::string text = text_of(plan.job.training.data_path);
    for (char& one : text) one = static_cast<char>(std::toupper(one));
    std::ofstream(folder / "other.txt") << text;
    plan.job.training.data_path = folder / "other.txt";
    CHECK(bench.error(plan, options) ==
          refusal(fmt::format(
              "training.data: the content of {} of {} bytes differs from {} in the checkpoint",
              plan.job.training.data_path, text.size(),
              bench.plan({"", {}}).job.training.data_path)));
  }
  SUBCASE("fewer steps than are done") {
    CHECK(bench.error(plan, resumed(folder.path(), kSaved - 1)) ==
          "the checkpoint was saved after step 3, but training.steps is 2: set training.steps to "
          "at least 3");
  }
  CHECK(text_of(folder / "metrics.jsonl") == metrics);
}

TEST_CASE("a refused run changes nothing, one that is over keeps its report and gets its weights") {
  const Bench bench;
  const ScratchFolder folder;
  const Plan plan = bench.plan({"", {.replica = 2}});
  bench.run(plan, options_of(folder.path(), kSteps));
  const std::string report = text_of(folder / "report.json");
  CHECK(text_of(folder / "weights/trainer_state.json") == "{\"global_step\": 6}\n");
  fs::create_directories(folder / "checkpoints/step-00000009.old.partial");
  fs::remove_all(folder / "weights");  // killed before it had written them

  training::TrainOptions options = resumed(folder.path(), kSteps);
  options.resume_step = 5;
  CHECK(bench.error(plan, options) ==
        folder /
            "checkpoints: no checkpoint of step 5; the folder has checkpoints of steps [3, 6]");
  CHECK(fs::exists(folder / "checkpoints/step-00000009.old.partial"));

  int ready = 0;
  options = resumed(folder.path(), kSteps);
  options.on_ready = [&] { ++ready; };
  CHECK(bench.run(plan, options).losses.empty());
  CHECK(ready == 1);
  CHECK(text_of(folder / "report.json") == report);
  CHECK(fs::exists(folder / "weights/model.safetensors"));
  CHECK(!fs::exists(folder / "checkpoints/step-00000009.old.partial"));
}

TEST_CASE("a damaged checkpoint stops the run with the step to resume from instead") {
  const Bench bench;
  const ScratchFolder folder;
  const Plan plan = bench.plan({"", {.replica = 2}});
  bench.run(plan, options_of(folder.path(), kSteps));
  std::string shard;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints/step-00000006")) {
    if (entry.path().filename().string().starts_with("shard-00002-model-00001")) {
      shard = entry.path().string();
    }
  }
  std::string bytes = text_of(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(shard, std::ios::binary) << bytes;
  training::TrainOptions options = resumed(folder.path(), kSteps);
  const std::string error = bench.error(plan, options);
  INFO(error);
  CHECK(error.starts_with(shard + ": '"));
  CHECK(error.ends_with("; to resume from the previous checkpoint, of step 3, give --resume=3"));
  options.resume_step = 3;
  CHECK(bench.run(plan, options).first_step == 3);
}

}  // namespace smp
