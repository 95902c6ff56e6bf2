#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "plan/job_texts.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

namespace smp {
using namespace testing;

TEST_CASE("the schema names every key that is written, and no other") {
  const auto schema = text::Json::parse(jobfile::job_schema());
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["required"] == text::Json{"model"});

  std::string names;  // as the lines of a written job begin
  const auto walk = [&](const auto& self, const text::Json& object, std::string margin) -> void {
    CHECK(object["additionalProperties"] == false);
    for (const auto& [key, value] : object["properties"].items()) {
      CHECK(value.contains("description"));
      names += margin + key + "\n";
      if (value.contains("properties")) self(self, value, margin + "  ");
    }
  };
  walk(walk, schema, "");
  const std::string list = rewritten(
      "model: {input: {channels: 1, height: 2, width: 2}, "
      "layers: [flatten, {type: linear, out: 3}, relu, {type: linear, out: 2}]}\n");
  std::istringstream lines(
      kEverything + "  decoder_layers: 2\n  partition_method: auto\n" +
      "  context_exchange_degree: auto\n  recompute_modules: [mlp]\n  fp8_recipe: current\n" +
      kFp16Sgd + kByGroup + kMamba + kYarn + kLongRope + list);
  std::set<std::string> written;
  for (std::string line; std::getline(lines, line);) {
    written.insert(line.substr(0, line.find(':')));
  }
  std::set<std::string> known;
  std::istringstream all(names);
  for (std::string line; std::getline(all, line);) known.insert(line);
  CHECK(written == known);
  CHECK(rewritten(kBoth).find("\n  decoder_layers: 2\n") != std::string::npos);
  CHECK(rewritten(kHybrid).find(kMamba) != std::string::npos);
  CHECK(rewritten(rewritten(kHybrid)) == rewritten(kHybrid));
  CHECK(rewritten(kSmall).find("mamba") == std::string::npos);
  // A hybrid without a Mamba layer has no sizes of one.
  const std::string attends =
      rewritten(kSmall + "  position_embedding: none\n  layer_pattern: \"*-*-\"\n");
  CHECK(attends.find("mamba") == std::string::npos);
  CHECK(rewritten(attends) == attends);
  const std::string job =
      rewritten(kSmall + "training: {precision: fp16, optimizer: {kind: sgd}}\n");
  CHECK(job.find(kFp16Sgd) != std::string::npos);
  CHECK(job.find("beta1") == std::string::npos);
  CHECK(rewritten(kSmall).find("loss_scale") == std::string::npos);
  const std::string by_type = "\n  partition_method: \"type:gpt2_block\"\n";
  CHECK(rewritten(kSmall + "parallel:" + by_type).find(by_type) != std::string::npos);
  CHECK(rewritten(kSmall).find("partition_method") == std::string::npos);
  const std::string on_gpus = kSmall + "cluster: {device: cuda, memory_per_process: 1GiB}\n";
  CHECK(rewritten(on_gpus + "parallel:\n" + kByGroup).ends_with(kByGroup));
  CHECK(rewritten(kSmall).find("\n  collectives:") == std::string::npos);

  const auto& model = schema["properties"]["model"];
  CHECK(model["type"] == text::Json{"object", "string"});  // of a published model the name
  CHECK(model["anyOf"][0]["required"] == text::Json{"layers"});
  CHECK(model["anyOf"][1]["required"] ==
        text::Json{"num_layers", "hidden_size", "num_heads", "vocab_size"});
  CHECK(model["properties"]["num_layers"]["type"] == "integer");
  CHECK(model["properties"]["num_layers"]["minimum"] == 1);
  CHECK(model["properties"]["family"]["enum"] == text::Json{"gpt2", "llama", "transformer"});
  CHECK(model["properties"]["family"]["default"] == "gpt2");
  const auto& sharding = schema["properties"]["parallel"]["properties"]["sharding"];
  CHECK(sharding["anyOf"][0]["enum"].size() == 4);
  CHECK(sharding["anyOf"][1]["const"] == "auto");
  CHECK(sharding["default"] == "auto");
}

TEST_CASE("docs/job-file.md is what the table of keys says") {
  const std::string path = SMP_SOURCE_DIR "/docs/job-file.md";
  std::ifstream file(path);
  std::stringstream committed;
  committed << file.rdbuf();
  const std::string generated = jobfile::job_reference_markdown();
  if (committed.str() != generated) {
    std::ofstream("job-file.md") << generated;
    MESSAGE("the page as it should be: job-file.md in the folder that this test ran in");
  }
  CHECK(committed.str() == generated);
}

TEST_CASE("choices have the names that job files use") {
  CHECK(name_of(ModelFamily::kLlama) == "llama");
  CHECK(name_of(DeviceKind::kCuda) == "cuda");
  CHECK(name_of(Precision::kFp16) == "fp16");
  CHECK(name_of(Sharding::kOptimizerState) == "optimizer_state");
  CHECK(name_of(PipelineKind::kInterleaved) == "interleaved");
}

}  // namespace smp
