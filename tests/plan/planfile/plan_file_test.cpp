#include "smp/plan/planfile/plan_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "plan/plan_samples.h"
#include "planfile/plan_format.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/rules/degree_rules.h"

using namespace smp;
using namespace smp::mesh;
using namespace smp::planfile;

namespace {

Plan predicted_plan() {
  Plan plan = sample_plan(small_gpt2(), {.pipeline = 2, .tensor = 2, .shard = 2});
  plan.job.training.data_suffixes = {".py"};
  plan.reasons = {"tensor 2: the block's matrices: \"half\" fits", "pipeline 2: #1 of 4"};
  plan.predictions = {
      .ranks = {}, .step_ns = 12'345'678, .tokens_per_step = 256, .bubble_ppm = 200'000};
  for (int64_t stage = 0; stage < 2; ++stage) {
    for (int64_t tensor = 0; tensor < 2; ++tensor) {
      plan.predictions.ranks.push_back(
          {.stage = stage,
           .tensor = tensor,
           .peak_bytes = 1000 + stage,
           .peak_phase = "backward",
           .terms = {{"fp32 weights", MemoryCategory::kWeights, 600, "4 B x 150", "engine"},
                     {"batch", MemoryCategory::kData, 400 + stage, "", ""}},
           .busy_ns = 10'000'000});
    }
  }
  return plan;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// The file with a header that fits its body, as a careful forger would write it.
std::string sealed(const std::string& text) {
  const size_t body_at = text.find("job:\n");
  const std::string body = text.substr(body_at);
  return fmt::format("smp_plan: 2\nbody_bytes: {}\nbody_hash: {}\n{}", body.size(), plan_hash(body),
                     body);
}

std::string error_of(const std::string& text) {
  try {
    parse_plan("plan.yaml", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a plan reads back as it was written, and writes the same bytes again") {
  const std::string text = write_plan(predicted_plan());
  const Plan read = parse_plan("plan.yaml", text);
  CHECK(write_plan(read) == text);
  CHECK(read.degrees == Degrees{.pipeline = 2, .tensor = 2, .shard = 2, .replica = 1});
  CHECK(read.reasons == predicted_plan().reasons);
  REQUIRE(read.predictions.ranks.size() == 4);
  const RankPrediction& last = read.predictions.ranks.back();
  CHECK(last.stage == 1);
  CHECK(last.tensor == 1);
  CHECK(last.peak_bytes == 1001);
  CHECK(last.peak_phase == "backward");
  CHECK(last.busy_ns == 10'000'000);
  REQUIRE(last.terms.size() == 2);
  CHECK(last.terms[0].formula == "4 B x 150");
  CHECK(last.terms[1].category == MemoryCategory::kData);
  CHECK(last.terms[1].source == "");
  CHECK(read.predictions.step_ns == 12'345'678);
  CHECK(read.job.training.data_suffixes == std::vector<std::string>{".py"});
}

TEST_CASE("a plan without predictions and reasons is a plan too") {
  for (const ModelSpec& model : {small_gpt2(), small_llama(), llama2_70b()}) {
    Plan plan = sample_plan(model, {.precision = Precision::kFp64});
    plan.job.parallel.partition = {model.num_layers};
    const std::string text = write_plan(plan);
    const Plan read = parse_plan("plan.yaml", text);
    CHECK(write_plan(read) == text);
    CHECK(read.job.model.tied_embeddings == model.tied_embeddings);
    CHECK(compute_dtype(read) == DType::kF64);
    CHECK(read.job.parallel.partition == std::vector<int64_t>{model.num_layers});
  }
}

TEST_CASE("a plan starts with version, size and hash") {
  const std::string text = write_plan(predicted_plan());
  CHECK(text.find("\nsmp_plan: 2\nbody_bytes: ") != std::string::npos);
  CHECK(text.find("\nbody_hash: fnv1a-") != std::string::npos);
  CHECK(text.find("\njob:\n  name: sample\n  model:\n    name: gpt2\n") != std::string::npos);
  CHECK(text.find("\n  ranks:\n    - stage: 0\n      tensor: 0\n      peak_bytes: 1000\n") !=
        std::string::npos);
}

TEST_CASE("the hash is FNV-1a of 64 bits") {
  CHECK(plan_hash("") == "fnv1a-cbf29ce484222325");  // the published test vectors
  CHECK(plan_hash("a") == "fnv1a-af63dc4c8601ec8c");
  CHECK(plan_hash("foobar") == "fnv1a-85944171f73967e8");
}

TEST_CASE("a job with open keys cannot be written as a plan") {
  Plan plan = predicted_plan();
  plan.job.training.global_batch.reset();
  CHECK_THROWS_AS(write_plan(plan), InternalError);
}

TEST_CASE("a file that is no plan says what it is") {
  CHECK(error_of("") == "plan.yaml: this plan is empty; write it again with smp-plan");
  CHECK(error_of("# my job\nname: tiny\nmodel:\n  num_layers: 2\n") ==
        "plan.yaml: this is a job file: run smp-plan plan.yaml -o plan.yaml first");
  CHECK(error_of("hello: world\n") == "plan.yaml: not a plan: the file has no line 'smp_plan: 2'");
  CHECK(error_of("job: 1\nsmp_plan: 2\n") ==
        "plan.yaml:1:1: expected the line 'smp_plan: ...' of a plan: write the plan with "
        "smp-plan\n  job: 1\n  ^");
}

TEST_CASE("another format version is refused by its number") {
  CHECK(error_of(replaced(write_plan(predicted_plan()), "smp_plan: 2", "smp_plan: 3")) ==
        "plan.yaml:3:11: the plan has format version 3, this program reads version 2: write it "
        "again with the smp-plan beside this program\n"
        "  smp_plan: 3\n"
        "            ^");
}

TEST_CASE("a cut file is told from an edited one") {
  const std::string text = write_plan(predicted_plan());
  const std::string bytes = text.substr(text.find("body_bytes: ") + 12, 4);
  const std::string cut = text.substr(0, text.size() - 100);
  CHECK(error_of(cut) ==
        fmt::format("plan.yaml:4:13: the plan is cut off after {} of {} bytes of its body; write "
                    "it again with smp-plan\n  body_bytes: {}\n              ^",
                    std::stoi(bytes) - 100, bytes, bytes));
  CHECK(
      error_of(text.substr(0, text.find("body_hash"))) ==
      "plan.yaml:5:1: expected the line 'body_hash: ...' of a plan: write the plan with smp-plan");
}

TEST_CASE("an edited file is refused, even by one character") {
  const std::string text = write_plan(predicted_plan());
  const std::string edited = replaced(text, "seed: 1234", "seed: 1235");
  const std::string error = error_of(edited);
  CHECK(
      error.starts_with("plan.yaml:5:12: the plan was edited after smp-plan wrote it (its hash is "
                        "now fnv1a-"));
  CHECK(
      error.find("): change the job and plan again, or use smp-plan --set\n  body_hash: fnv1a-") !=
      std::string::npos);
  CHECK(error_of(text + "\n").find("was edited") != std::string::npos);
}

TEST_CASE("a plan that lacks something, or says too much, is refused at the place") {
  const std::string text = write_plan(predicted_plan());
  const auto with = [&](const std::string& from, const std::string& to) {
    return error_of(sealed(replaced(text, from, to)));
  };
  CHECK(with("  step_ns: 12345678\n", "").find("predictions needs 'step_ns'") != std::string::npos);
  CHECK(with("      peak_phase: backward\n", "").find("item 1 of ranks needs 'peak_phase'") !=
        std::string::npos);
  CHECK(with("predictions:", "prediction:").find("a plan needs 'predictions'") !=
        std::string::npos);
  CHECK(with("    - stage: 0", "    - color: 3\n      stage: 0")
            .find("unknown key 'color' in item 1 of ranks") != std::string::npos);
  CHECK(with("category: weights", "category: weight")
            .find("category must be weights, gradients, optimizer, activations, workspace, "
                  "communication or data, not 'weight'") != std::string::npos);
  CHECK(with("precision: fp32", "precision: auto")
            .find("training.precision is auto, but a plan must have a value; write it again with "
                  "smp-plan") != std::string::npos);
  CHECK(with("  replica: 1", "  replica: 3")
            .find("the degrees do not match cluster and parallel of the job; write the plan again "
                  "with smp-plan") != std::string::npos);
  CHECK(
      with("processes_per_host: 8", "processes_per_host: 7")
          .find("pipeline_parallel_degree (2) x tensor_parallel_degree (2) = 4 does not divide the "
                "7 processes of the cluster (1 host x 7)") != std::string::npos);
}

TEST_CASE("a plan file is read from disk, and a missing one is named") {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("smp-plan-file-test-{}.yaml", std::hash<std::string>{}("plan"));
  std::ofstream(path) << write_plan(predicted_plan());
  CHECK(read_plan(path.string()).predictions.tokens_per_step == 256);
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(read_plan("nowhere/plan.yaml"),
                       "nowhere/plan.yaml: No such file or directory", ConfigError);
  CHECK_THROWS_WITH_AS(read_plan("/"), "/: this is a folder; name the plan file in it",
                       ConfigError);
}

TEST_CASE("degrees that do not fill the cluster are refused with the equation") {
  Plan plan = predicted_plan();
  plan.job.parallel.sharded_data_parallel_degree = 3;
  CHECK_THROWS_WITH_AS(
      rules::degrees_of(plan.job),
      "sharded_data_parallel_degree (3) does not divide the data-parallel degree (2)", ConfigError);
  plan.job.parallel.pipeline_parallel_degree = 3;
  CHECK_THROWS_WITH_AS(rules::degrees_of(plan.job),
                       "pipeline_parallel_degree (3) x tensor_parallel_degree (2) = 6 does not "
                       "divide the 8 processes of the cluster (1 host x 8)",
                       ConfigError);
}
