#include <doctest/doctest.h>

#include <string>

#include "published/csv_reader.h"
#include "published/published_run.h"
#include "smp/plan/framework/framework_catalog.h"

using namespace smp;
using namespace smp::published;

TEST_CASE("a row's words choose its framework, the first that docs/scoring.md lists") {
  const struct {
    const char* model;
    const char* sharding;
    const char* tp;
    const char* source;
    const char* framework;
  } rows[] = {
      {"gpt", "none", "1", "the guide of SMP v1", "smp-v1"},
      {"gpt", "zero3", "1", "SageMaker's reference", "smp-v2"},
      {"gpt", "megatron-fsdp", "1", "Megatron-LM", "megatron-core"},
      {"gpt", "megatron-fsdp", "1", "Megatron-Bridge", "nemo"},
      {"gpt", "zero1", "1", "InternEvo", "internevo"},
      {"gpt", "fsdp", "1", "torchtitan", "torchtitan"},
      {"gpt", "none", "2", "torchtitan", "torchtitan"},
      {"gpt", "hsdp", "1", "somebody", "fsdp2"},
      {"gpt", "zero3", "1", "llm-foundry", "fsdp2"},
      {"gpt", "zero1", "1", "section: Megatron; beside DeepSpeed", "megatron-core"},
      {"gpt", "zero1", "1", "BigScience's sweep, DeepSpeed", "deepspeed-2021"},
      {"bloom", "zero1", "1", "a paper", "deepspeed-2021"},
      {"gpt", "zero3", "1", "DeepSpeed's page", "deepspeed"},
      {"gpt", "zero1", "1", "NVIDIA/NeMo at 1a2b", "nemo"},
      {"gpt", "none", "1", "DGXC benchmarking", "nemo"},
      {"nemotron-4", "none", "1", "Megatron-LM", "megatron-core"},
      {"gpt", "zero3", "1", "Megatron-LM", "deepspeed"},
      {"gpt", "none", "1", "Selene", "megatron-core"},
      {"llama", "zero1", "1", "nanotron's benchmark", "nanotron"},
      {"llama", "zero1", "8", "somebody's page", "unknown"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.source));
    CAPTURE(std::string(row.sharding));
    const CsvTable table =
        parse_csv("t.csv", std::string("id,model,sharding,tp,source\nr,") + row.model + "," +
                               row.sharding + "," + row.tp + ",\"" + row.source + "\"\n");
    const RunCells cells(table, table.rows.front());
    const std::string framework = framework_of_run(cells);
    CHECK(framework == row.framework);
    CHECK(framework::framework_named(framework).name == framework);
  }
}
