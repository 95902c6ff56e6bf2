#include "smp/plan/jobfile/model_catalog.h"

#include <doctest/doctest.h>

#include <fstream>
#include <map>

#include "files_and_errors.h"
#include "jobfile/model_names.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/jobfile/model_table.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"

using namespace smp;
using namespace smp::jobfile;

namespace {

std::string found(std::string_view name) {
  const NamedModel* model = find_model(name);
  return model == nullptr ? "" : std::string(model->name);
}

JobSpec job_with(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return read_job({{"job.yaml", text}}, overrides);
}

}  // namespace

TEST_CASE("a published model is found by its repository, its recipe and its short name") {
  CHECK(found("llama3-8b") == "llama3-8b");
  CHECK(found("LLAMA3_8B") == "llama3-8b");
  CHECK(found("meta-llama/Meta-Llama-3-8B-Instruct") == "llama3-8b");
  CHECK(found("meta-llama/Llama-3.1-8B-Instruct") == "llama3.1-8b");
  CHECK(found("llama31_405b") == "llama3-405b");
  CHECK(found("Llama-2-70b-chat-hf") == "llama2-70b");
  CHECK(found("Qwen3_30B_a3B") == "qwen3-30b-a3b");
  CHECK(found("Qwen/Qwen2.5-7B-Instruct") == "qwen2-7b");
  CHECK(found("Qwen/Qwen2.5-Coder-7B-Instruct") == "qwen2-7b");
  CHECK(found("Qwen/QwQ-32B") == "qwen2.5-32b");
  CHECK(found("deepseek-ai/DeepSeek-R1-Distill-Llama-8B") == "llama3.1-8b");
  // Its embedding is not tied.
  CHECK(found("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B") == "");
  CHECK(found("deepseek-ai/DeepSeek-V3") == "deepseek-v3");
  CHECK(found("deepseek_v3-") == "deepseek-v3");
  CHECK(found("google/gemma-3-27b-it") == "gemma3-27b");
  CHECK(found("nemotronh_8b") == "nemotron-h-8b");
  CHECK(found("mixtral 8x7b") == "mixtral-8x7b");
  CHECK(found("gpt3-13b") == "gpt3-13b");  // and not 1.3 B
  CHECK(found("gpt3-1_3b") == "gpt3-1.3b");
  CHECK(found("Qwen/Qwen3-8B-Base") == "qwen3-8b");
  CHECK(found("Qwen/Qwen3-30B-A3B-Instruct-2507") == "qwen3-30b-a3b-2507");
  CHECK(found("Qwen/Qwen3-30B-A3B-Instruct") == "qwen3-30b-a3b");
  CHECK(found("mistralai/Mistral-7B-Instruct-v0.2") == "mistral-7b-v0.2");
  CHECK(found("mistralai/Mistral-Nemo-Instruct-2407") == "mistral-nemo-12b");
  CHECK(found("mistralai/Mistral-7B-Instruct-v0.3") == "mistral-7b-v0.3");
  CHECK(found("mistralai/Mistral-7B-Instruct-v0.4") == "");
  CHECK(found("moonshotai/Kimi-K2-Instruct") == "kimi-k2");
  CHECK(found("t5-base") == "t5-base");
  CHECK(found("t5") == "");
  CHECK(found("Llama3Config8B") == "llama3-8b");
  CHECK(found("Llama3ModelProvider70B") == "llama3-70b");
  CHECK(found("Nemotron4Config340B") == "nemotron4-340b");
  CHECK(found("llama3") == "");
  CHECK(found("") == "");
  CHECK(found("llama3-9b") == "");
}

TEST_CASE("each name stands for one model") {
  std::map<std::string, std::string_view> owners;
  for (const NamedModel& model : named_models()) {
    std::vector<std::string> names = other_names(model);
    names.emplace_back(model.name);
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK(found(name) == model.name);
      CHECK(find_unpriced_model(name) == nullptr);
      const auto [owner, is_new] = owners.emplace(compared_name(name), model.name);
      CHECK(owner->second == model.name);
    }
    CHECK(source_of(model) != "");
  }
  CHECK(named_models().size() >= 120);
  for (const UnpricedModel& model : unpriced_models()) CHECK(found(model.name) == "");
}

TEST_CASE("a name that is unknown is an error with the nearest ones, never a guess") {
  CHECK(unknown_model("gpt2-125m") ==
        "unknown model 'gpt2-125m', did you mean 'gpt2-124m' or 'gpt3-125m' or 'gpt2-1.5b'? "
        "smp-plan models lists all models");
  CHECK(unknown_model("lama3-8b") ==
        "unknown model 'lama3-8b', did you mean 'llama3-8b' or 'neva-llama3-8b' or 'llama3.1-8b'? "
        "smp-plan models "
        "lists all models");
  CHECK(unknown_model("zzz") == "unknown model 'zzz'. smp-plan models lists all models");
  CHECK(unknown_model("Qwen/Qwen3-Next-80B-A3B-Instruct") ==
        "model 'Qwen/Qwen3-Next-80B-A3B-Instruct' is known, but its layers of linear attention "
        "(gated delta nets) are not priced");
  CHECK(models_like("nemotron-h") ==
        std::vector<std::string>{"nemotron-h-47b", "nemotron-h-56b", "nemotron-h-8b"});
}

TEST_CASE("a job names its model, and keys of the job and the command line override the table's") {
  const JobSpec job = job_with("model: Qwen/Qwen3-30B-A3B\n");
  CHECK(job.name == "job");
  CHECK(job.model.name == "qwen3-30b-a3b");
  CHECK(job.model.num_layers == 48);
  CHECK(job.model.num_experts == 128);
  CHECK(job.training.sequence_length == 4096);
  const JobSpec longer = job_with("training: {sequence_length: 8192}\nmodel: qwen3-30b-a3b\n",
                                  {"model.num_layers=24"});
  CHECK(longer.training.sequence_length == 8192);
  CHECK(longer.model.num_layers == 24);
  CHECK(error_of([] { job_with("name: x\nmodel: lama3-70b\n"); }) ==
        "job.yaml:2:8: unknown model 'lama3-70b', did you mean 'llama3-70b' or 'llama2-70b' or "
        "'llama3.1-70b'? smp-plan models lists all models\n"
        "  model: lama3-70b\n"
        "         ^");
}

TEST_CASE("the parameters of every published model are those of its layers") {
  for (const NamedModel& model : named_models()) {
    CAPTURE(model.name);
    const ModelSpec spec = spec_of(model).model;
    int64_t sum = 0;
    for (const model::LayerSpec& layer : model::layers_of(spec)) {
      for (const model::ParameterSpec& parameter : model::parameters_of(spec, layer)) {
        sum += parameter.size();
      }
    }
    CHECK(sum == model::parameter_count(spec));
  }
}

TEST_CASE("the section of a model reads as the model") {
  const NamedModel& model = *find_model("nemotron-h-8b");
  const JobSpec job = job_with(model_section(model));
  CHECK(model::parameter_count(job.model) == model::parameter_count(spec_of(model).model));
  CHECK(published_parameters(*find_model("gpt2-124m")) == 124439808);
  CHECK(source_of(*find_model("llama3-8b")) == "meta-llama/Meta-Llama-3-8B config.json");
  CHECK(other_names(*find_model("llama3-8b")) ==
        std::vector<std::string>{"meta-llama/Meta-Llama-3-8B", "llama3_8b"});
  CHECK(other_names(*find_model("gpt2-10b")).empty());
}

TEST_CASE("docs/models.md is what the table of models says") {
  const std::string committed = text_of(SMP_SOURCE_DIR "/docs/models.md");
  const std::string generated = models_markdown();
  if (committed != generated) {
    std::ofstream("models.md") << generated;
    MESSAGE("the page as it should be: models.md in the folder that this test ran in");
  }
  CHECK(committed == generated);
}
