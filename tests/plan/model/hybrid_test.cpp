#include "smp/plan/model/hybrid.h"

#include <doctest/doctest.h>

#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/jobfile/model_table.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/seen_pairs.h"

using namespace smp;
using namespace smp::model;

namespace {

ModelSpec published(std::string_view name) {
  return jobfile::spec_of(*jobfile::find_model(name)).model;
}

}  // namespace

TEST_CASE("a hybrid's layers are what the pattern says") {
  const ModelSpec model = published("nemotron-h-8b");
  CHECK(is_hybrid(model));
  CHECK_FALSE(is_hybrid(published("llama3-8b")));
  CHECK(layer_letter(model, 0) == kMambaLetter);
  CHECK(layer_letter(model, 7) == kAttentionLetter);
  CHECK(letters(model, kMambaLetter) == 24);
  CHECK(letters(model, kAttentionLetter) == 4);
  CHECK(letters(model, kMlpLetter) == 24);
  CHECK(letters_between(model, kMambaLetter, 2, 8) == 3);
  CHECK_FALSE(is_dense_decoder(model));
  CHECK_FALSE(has_blocks_of(model, ModelFamily::kTransformer));
}

// Of mamba_ssm's Mamba2 with Nemotron-H 8B's sizes: in_proj, conv1d and its bias, A_log, D,
// dt_bias, norm, out_proj, and the norm before it.
TEST_CASE("a layer of Mamba-2 has the parameters of mamba_ssm's") {
  const ModelSpec model = published("nemotron-h-8b");
  CHECK(mamba_inner(model) == 8192);
  CHECK(mamba_convolved(model) == 10240);
  CHECK(mamba_projected(model) == 18560);
  int64_t sum = 0;
  for (const ParameterSpec& parameter : parameters_of(model, layers_of(model)[1])) {
    sum += parameter.size();
  }
  CHECK(sum == 4096 * 18560 + 10240 * 5 + 3 * 128 + 8192 + 8192 * 4096 + 4096);
}

TEST_CASE("the counts of a hybrid's layers are the sums over the parameters of each") {
  for (const char* name : {"nemotron-h-8b", "nemotron3-nano-30b-a3b"}) {
    const ModelSpec model = published(name);
    double all = 0;
    for (const LayerSpec& layer : layers_of(model)) {
      double sum = 0, experts = 0;
      for (const ParameterSpec& parameter : parameters_of(model, layer)) {
        (parameter.is_expert ? experts : sum) += static_cast<double>(parameter.size());
      }
      CHECK(parameters_of_layer(model, layer).all() == sum);
      all += sum + experts;
    }
    CHECK(parameter_counts(model).total() == all);
  }
}

TEST_CASE("experts of a hybrid count once in each layer of experts") {
  const ModelSpec model = published("nemotron3-nano-30b-a3b");
  const ParameterCounts counts = parameter_counts(model);
  CHECK(counts.of(LayerKind::kMoeBlock).count == 23);
  int64_t others = 0;
  for (const BlockParameters& block : counts.blocks) others += block.has_experts ? 0 : block.count;
  CHECK(others == 29);
  CHECK(has_experts(model, 1));
  CHECK_FALSE(has_experts(model, 0));
  CHECK(counts.active() == doctest::Approx(3.58e9).epsilon(0.01));
}

TEST_CASE("the flops of a hybrid are those of its attention layers and its scans") {
  ModelSpec model = published("nemotron-h-8b");
  // Scores of a chunk of 128 tokens and 8 groups; then each of 128 heads of 64.
  CHECK(mamba_scan_flops(model) == 8 * 2 * 128 * 128 + 128 * (2 * 128 * 64 + 4 * 128 * 64));
  const ParameterCounts counts = parameter_counts(model);
  const double products = counts.total() - counts.embedding.all();
  const double attention = 12.0 * 4 * 8192 * 32 * 128;
  CHECK(model_flops(model, 8192, 1) ==
        doctest::Approx(8192 * (6 * products + attention + 3 * 24 * mamba_scan_flops(model))));
}

TEST_CASE("attention sees what the windows of its layers let it see") {
  ModelSpec model;
  model.num_layers = 8;
  CHECK(seen_pairs(model, 1000) == 500000);
  model.sliding_window = 100;
  CHECK(seen_pairs(model, 1000) == 100 * 1000 - 5000);
  CHECK(seen_pairs(model, 100) == 5000);
  model.chunked_windows = true;
  CHECK(seen_pairs(model, 1000) == 10 * 5000);
  CHECK(seen_pairs(model, 1050) == 10 * 5000 + 50 * 50 / 2);
  model.full_attention_period = 4;  // two layers of eight
  CHECK(windowed_layers(model) == 6);
  CHECK(seen_pairs(model, 1000) == doctest::Approx(0.75 * 50000 + 0.25 * 500000));
}

TEST_CASE("a vision tower is parameters of the first layer, which no product counts") {
  ModelSpec model = published("llama3-8b");
  const double all = parameter_counts(model).total();
  const double flops = model_flops(model, 8192, 1);
  model.vision_parameters = 1000000;
  CHECK(parameter_counts(model).total() == all + 1e6);
  CHECK(parameter_counts(model).embedding.whole == 1e6);
  CHECK(model_flops(model, 8192, 1) == flops);
}

TEST_CASE("norms before and after each part are four a layer") {
  ModelSpec model = published("llama3-8b");
  const int64_t before = parameter_count(model);
  model.norm_placement = NormPlacement::kBoth;
  CHECK(parameter_count(model) == before + 2 * 32 * 4096);
  model.norm_placement = NormPlacement::kAfter;
  CHECK(parameter_count(model) == before);
}
