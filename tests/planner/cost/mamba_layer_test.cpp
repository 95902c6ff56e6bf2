#include <doctest/doctest.h>

#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"

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
    return layer_bytes(job, choice_of(tensor)).block.saved;
  };
  // In 16 bits the outputs of both norms, of the layer and of the projection, what the scan gives
  // and that times the gate; in fp32 the norms' statistics.
  const double h = 4096, projected = 18560, inner = 8192;
  CHECK(saved(1) == 4096 * (2.0 * (2 * h + projected + 3 * inner) + 2 * 4));
  CHECK(saved(1) - saved(2) == 4096 * (projected + 3 * inner));
}

TEST_CASE("a block of a hybrid costs the mean of its layers without experts") {
  const choice::LayoutChoice choice = choice_of(1);
  const double mamba = seconds_with("M", choice).block.forward();
  const double attention = seconds_with("*", choice).block.forward();
  const double mlp = seconds_with("-", choice).block.forward();
  CHECK(mamba > 0);
  CHECK(attention > 0);
  CHECK(mlp > mamba);  // 352 and 221 Mflop a token
  const double mixed = seconds_with("M-M*", choice).block.forward();
  CHECK(mixed == doctest::Approx((2 * mamba + attention + mlp) / 4));

  JobSpec job = job_of("nemotron-h-8b");
  const auto bytes_with = [&](const char* pattern) {
    job.model.layer_pattern = pattern;
    job.model.num_layers = static_cast<int64_t>(job.model.layer_pattern.size());
    return layer_bytes(job, choice);
  };
  const CallBytes of_mamba = bytes_with("M").block, of_mlp = bytes_with("-").block;
  const CallBytes of_both = bytes_with("M-").block;
  CHECK(of_both.saved == doctest::Approx((of_mamba.saved + of_mlp.saved) / 2));
  CHECK(of_both.workspace == std::max(of_mamba.workspace, of_mlp.workspace));
}

TEST_CASE("layers of experts of a hybrid have no attention") {
  const JobSpec hybrid = job_of("nemotron3-nano-30b-a3b");
  JobSpec plain = hybrid;
  plain.model.layer_pattern.clear();
  choice::LayoutChoice choice = choice_of(1);
  choice.expert = 8;
  CHECK(layer_seconds(hybrid, choice).moe_block.forward() <
        layer_seconds(plain, choice).moe_block.forward());
  CHECK(layer_bytes(hybrid, choice).moe_block.saved < layer_bytes(plain, choice).moe_block.saved);
  CHECK(layer_bytes(hybrid, choice).expert_parameters ==
        16 * model::parameter_counts(hybrid.model).expert.all());
}

TEST_CASE("tensor ranks share a Mamba-2 layer, and context ranks exchange parts of sequences") {
  const CallSeconds whole = seconds_with("M", choice_of(1)).block;
  const CallSeconds cut = seconds_with("M", choice_of(2)).block;
  CHECK(cut.matmul_forward < whole.matmul_forward);
  CHECK(cut.tensor_forward > 0);
  CHECK(whole.context_forward == 0);
  CHECK(seconds_with("M", choice_of(1, 2)).block.context_forward > 0);
  CHECK(seconds_with("-", choice_of(1, 2)).block.context_forward == 0);
}

TEST_CASE("windows in a part of the layers save a part of the time of attention") {
  JobSpec job = job_of("gemma2-9b");
  job.training.sequence_length = 32768;
  const auto seconds = [&](int64_t window, int64_t period) {
    job.model.sliding_window = window;
    job.model.full_attention_period = period;
    return layer_seconds(job, choice_of(1)).block.forward();
  };
  const double full = seconds(0, 0), windowed = seconds(4096, 0), every_second = seconds(4096, 2);
  CHECK(windowed < full);
  CHECK(every_second == doctest::Approx((windowed + full) / 2).epsilon(0.02));
}
