#include "smp/planner/cost/layer_kinds.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cost/stage_holds.h"
#include "plan/list_samples.h"
#include "plan/small_models.h"
#include "planner/job_samples.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/planner/cost/layer_bytes.h"

using namespace smp;
using namespace smp::cost;

namespace {

JobSpec job_of(const std::string& model, const std::string& training = "") {
  return jobfile::read_job({{"job.yaml", "model: " + model +
                                             "\ncluster: dgx-h100\n"
                                             "training: {precision: bf16" +
                                             training +
                                             "}\n"
                                             "parallel: {framework: megatron-core}\n"}},
                           {});
}

}  // namespace

TEST_CASE("layers that cost the same are one kind, in the order of the model") {
  const auto first_layers = [](const JobSpec& job) {
    const LayerKinds kinds(job);
    std::string names;
    for (size_t i = 0; i < kinds.size(); ++i) {
      names += (i > 0 ? " " : "") + kinds[i].layer.name + std::string(kinds[i].words);
    }
    return names;
  };
  CHECK(first_layers(job_of("llama2-7b")) == "embedding layers.0 head");
  CHECK(first_layers(job_of("deepseek-v3")) ==
        "embedding layers.0 layers.3 of experts mtp_layers.0 of experts head");
  CHECK(first_layers(job_of("t5-11b")) ==
        "embedding layers.0 decoder_layers.0 that attend twice head");
  CHECK(first_layers(job_of("nemotron3-nano-30b-a3b")) ==
        "embedding layers.0 of Mamba-2 layers.1 of experts layers.5 of attention head");
  CHECK(first_layers(job_of("llama2-7b", ", frozen: [layers.0-3]")) ==
        "embedding layers.0 that are frozen layers.4 head");

  JobSpec list;
  list.model = small_list();
  const LayerKinds kinds(list);
  CHECK(kinds.size() == model::layers_of(list.model).size());
  CHECK_FALSE(kinds.has_embedding());
  CHECK(kinds.end_blocks() == kinds.head());
}

TEST_CASE("all layers of a kind have its parameters") {
  for (const char* name : {"llama2-7b", "deepseek-v3", "nemotron3-nano-30b-a3b", "llama4-scout"}) {
    const JobSpec job = job_of(name);
    const LayerBytes bytes = layer_bytes(job, {});
    for (const model::LayerSpec& layer : model::layers_of(job.model)) {
      INFO(layer.name);
      double sum = 0;
      for (const model::ParameterSpec& parameter : model::parameters_of(job.model, layer)) {
        sum += static_cast<double>(parameter.size());
      }
      CHECK(bytes.of(layer).all_parameters() == sum);
    }
  }
}

TEST_CASE("a range of blocks is counted by kind as one by one") {
  for (const char* name : {"llama2-7b", "deepseek-v3", "nemotron-h-8b", "llama4-scout", "t5-11b"}) {
    const JobSpec job = job_of(name);
    const LayerKinds kinds(job);
    const std::vector<model::LayerSpec> layers = model::layers_of(job.model);
    for (int64_t begin = 0; begin < kinds.blocks(); begin += 3) {
      for (int64_t end = begin; end <= kinds.blocks(); end += 5) {
        std::vector<double> counts(kinds.size()), expected(kinds.size());
        kinds.count_blocks(begin, end, counts);
        for (int64_t block = begin; block < end; ++block) {
          ++expected[kinds.of(layers[static_cast<size_t>(block + 1)])];
        }
        REQUIRE(counts == expected);
      }
    }
  }
}

TEST_CASE("the stages of a layout hold the layers of the model once") {
  for (const char* name : {"deepseek-v3", "nemotron-h-8b", "t5-11b"}) {
    const JobSpec job = job_of(name);
    const LayerKinds kinds(job);
    std::vector<double> all(kinds.size());
    for (const model::LayerSpec& layer : model::layers_of(job.model)) ++all[kinds.of(layer)];
    choice::LayoutChoice choice{.pipeline = 4};
    for (const int32_t chunks : {1, 2, 3}) {
      choice.virtual_stages = chunks;
      if (chunks > 1) choice.schedule = PipelineKind::kVirtual;
      std::vector<double> sum(kinds.size());
      for (int64_t stage = 0; stage < 4; ++stage) {
        const StageHolds holds = stage_holds(kinds, choice, stage);
        for (size_t kind = 0; kind < sum.size(); ++kind) sum[kind] += holds.of_kind[kind];
      }
      CHECK(sum == all);
    }
  }
}

TEST_CASE("every kind of block that the engine runs has a price, on CPUs and on GPUs") {
  std::vector<ModelSpec> models = test::small_others();
  for (const ModelSpec& model : test::small_attentions()) models.push_back(model);
  for (const ModelSpec& model : test::small_mixtures()) models.push_back(model);
  for (const ModelSpec& model : models) {
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      INFO(model.name);
      JobSpec job = test::small_job();
      job.model = model;
      job.cluster.device = device;
      const Plan plan = std::get<Plan>(search::plan_job(job, {}).best);
      CHECK(plan.predictions.step_ns > 0);
      CHECK(plan.predictions.ranks.front().peak_bytes > 0);
    }
  }
}
