#include <doctest/doctest.h>

#include "cost/stage_holds.h"
#include "memory/stage_blocks.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"
#include "time/stage_seconds.h"

using namespace smp;
using namespace smp::cost;

namespace {

JobSpec job_of(const std::string& model) {
  return jobfile::read_job({{"job.yaml", "model: " + model +
                                             "\ncluster: dgx-h100\n"
                                             "training: {precision: bf16, sequence_length: 4096}\n"
                                             "parallel: {framework: megatron-core}\n"}},
                           {});
}

choice::LayoutChoice choice_of(int32_t tensor, int32_t context = 1) {
  choice::LayoutChoice choice;
  choice.tensor = tensor;
  choice.context = context;
  choice.replica = 8 / (tensor * context);
  choice.micro_batch = 1;
  choice.microbatches = 8;
  choice.precision = Precision::kBf16;
  return choice;
}

LayerSeconds seconds_with(const std::string& pattern, const choice::LayoutChoice& choice) {
  JobSpec job = job_of("nemotron-h-8b");
  job.model.layer_pattern = pattern;
  job.model.num_layers = static_cast<int64_t>(pattern.size());
  return layer_seconds(job, choice);
}

}  // namespace

TEST_CASE("a Mamba-2 layer keeps its projection, the scan's output, and what its matrices read") {
  JobSpec job = job_of("nemotron-h-8b");
  job.model.layer_pattern = "M";
  job.model.num_layers = 1;
  const auto saved = [&](int32_t tensor) {
    return layer_bytes(job, choice_of(tensor)).of(model::LayerKind::kBlock).call.saved;
  };
  // In 16 bits the outputs of both norms, of the layer and of the projection, what the scan gives
  // and that times the gate; in fp32 the norms' statistics.
  const double h = 4096, projected = 18560, inner = 8192;
  CHECK(saved(1) == 4096 * (2.0 * (2 * h + projected + 3 * inner) + 2 * 4));
  CHECK(saved(1) - saved(2) == 4096 * (projected + 3 * inner));
}

TEST_CASE("a stage of a hybrid costs the very layers that it holds") {
  JobSpec job = job_of("nemotron-h-8b");
  job.model.layer_pattern = "M-M*MMM-";
  job.model.num_layers = 8;
  choice::LayoutChoice choice = choice_of(1);
  choice.pipeline = 2;
  choice.replica = 4;
  const double mamba = seconds_with("M", choice).of(model::LayerKind::kBlock).forward();
  const double attention = seconds_with("*", choice).of(model::LayerKind::kBlock).forward();
  const double mlp = seconds_with("-", choice).of(model::LayerKind::kBlock).forward();
  CHECK(mamba > 0);
  CHECK(attention > 0);
  CHECK(mlp > mamba);  // 352 and 221 Mflop a token

  const LayerBytes bytes = layer_bytes(job, choice);
  const LayerSeconds seconds = layer_seconds(job, choice);
  const auto on_stage = [&](int64_t stage) {
    const StageHolds holds = stage_holds(*bytes.kinds, choice, stage);
    return time::stage_seconds(job, choice, bytes, seconds, holds, parameters_of(bytes, holds));
  };
  const double embedding = seconds.of(model::LayerKind::kEmbedding).forward();
  const double head = seconds.of(model::LayerKind::kHead).forward();
  // Messages between the stages take both the same time.
  const double first = embedding + 2 * mamba + attention + mlp, last = head + 3 * mamba + mlp;
  CHECK(on_stage(1).forward - on_stage(0).forward == doctest::Approx(last - first));

  double held = 0;
  for (const model::LayerSpec& layer : model::layers_of(job.model)) {
    if (layer.index > 4) break;
    for (const model::ParameterSpec& parameter : model::parameters_of(job.model, layer)) {
      held += static_cast<double>(parameter.size());
    }
  }
  CHECK(parameters_of(bytes, stage_holds(*bytes.kinds, choice, 0)).dense == held);

  // Each kind keeps its own.
  const auto kept = [&](const char* pattern) {
    JobSpec one = job;
    one.model.layer_pattern = pattern;
    one.model.num_layers = 1;
    return layer_bytes(one, choice).of(model::LayerKind::kBlock).call.saved;
  };
  const auto kept_on = [&](int64_t stage) {
    return memory::blocks_kept(choice, bytes, stage_holds(*bytes.kinds, choice, stage)).all();
  };
  CHECK(kept_on(0) == doctest::Approx(2 * kept("M") + kept("*") + kept("-")));
  CHECK(kept_on(1) == doctest::Approx(3 * kept("M") + kept("-")));
}

TEST_CASE("layers of experts of a hybrid have no attention") {
  const JobSpec hybrid = job_of("nemotron3-nano-30b-a3b");
  JobSpec plain = hybrid;
  plain.model.layer_pattern.clear();
  choice::LayoutChoice choice = choice_of(1);
  choice.expert = 8;
  CHECK(layer_seconds(hybrid, choice).of(model::LayerKind::kMoeBlock).forward() <
        layer_seconds(plain, choice).of(model::LayerKind::kMoeBlock).forward());
  CHECK(layer_bytes(hybrid, choice).of(model::LayerKind::kMoeBlock).call.saved <
        layer_bytes(plain, choice).of(model::LayerKind::kMoeBlock).call.saved);
  CHECK(layer_bytes(hybrid, choice).of(model::LayerKind::kMoeBlock).expert_parameters ==
        16 * model::parameter_counts(hybrid.model).expert.all());
}

TEST_CASE("tensor ranks share a Mamba-2 layer, and context ranks exchange parts of sequences") {
  const CallSeconds whole = seconds_with("M", choice_of(1)).of(model::LayerKind::kBlock);
  const CallSeconds cut = seconds_with("M", choice_of(2)).of(model::LayerKind::kBlock);
  CHECK(cut.matmul_forward < whole.matmul_forward);
  CHECK(cut.tensor_forward > 0);
  CHECK(whole.context_forward == 0);
  CHECK(seconds_with("M", choice_of(1, 2)).of(model::LayerKind::kBlock).context_forward > 0);
  CHECK(seconds_with("-", choice_of(1, 2)).of(model::LayerKind::kBlock).context_forward == 0);
}

TEST_CASE("windows in a part of the layers save a part of the time of attention") {
  JobSpec job = job_of("gemma2-9b");
  job.training.sequence_length = 32768;
  const auto seconds = [&](int64_t window, int64_t period) {
    job.model.sliding_window = window;
    job.model.full_attention_period = period;
    return layer_seconds(job, choice_of(1)).of(model::LayerKind::kBlock).forward();
  };
  const double full = seconds(0, 0), windowed = seconds(4096, 0), every_second = seconds(4096, 2);
  CHECK(windowed < full);
  CHECK(every_second == doctest::Approx((windowed + full) / 2).epsilon(0.02));
}
