#include "cost/layer_parameters.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/persistent_tensors.h"
#include "smp/plan/spec/plan.h"

namespace smp::cost {
namespace {

double persistent_elements(const JobSpec& job, const choice::LayoutChoice& choice,
                           const model::LayerSpec& layer) {
  const ModelSpec& model = job.model;
  const int64_t threshold = job.parallel.param_persistence_threshold;
  if (threshold == 0) return 0;
  const std::vector<model::ParameterSpec> tensors =
      model::parameters_of(model, layer, job.parallel.tensor_parallel);
  const std::vector<bool> persistent =
      model::persistent_tensors(tensors, threshold, model::kv_copies(model, choice.tensor) > 1,
                                choice.expert > 1 && exchanges_rows(job));
  double elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!persistent[i]) continue;
    elements += static_cast<double>(model::tensor_box(model, tensors[i], choice.tensor, 0).size());
  }
  return elements;
}

}  // namespace

double vocabulary_rows(const JobSpec& job, const choice::LayoutChoice& choice) {
  const int64_t ranks = job.parallel.tensor_parallel.embedding ? choice.tensor : 1;
  const auto rows = static_cast<double>(model::padded_vocab_rows(job.model, ranks));
  return std::ceil(rows / static_cast<double>(ranks));
}

double tied_copy(const JobSpec& job, const choice::LayoutChoice& choice) {
  if (!model::reuses_embedding(job.model) || choice.pipeline == 1) return 0;
  return vocabulary_rows(job, choice) * static_cast<double>(job.model.hidden_size);
}

void count_parameters(KindBytes& bytes, const JobSpec& job, const choice::LayoutChoice& choice,
                      const model::LayerSpec& layer) {
  const ModelSpec& model = job.model;
  const TensorKinds& kinds = job.parallel.tensor_parallel;
  const auto of_rank = [&](const model::ParameterSum& sum) {
    return sum.of_rank(choice.tensor, model.num_kv_heads);
  };
  bytes.parameters = of_rank(model::parameters_of_layer(model, layer, kinds));
  if (!model::is_list(model)) {
    const bool has_table = layer.kind == model::LayerKind::kEmbedding ||
                           (layer.kind == model::LayerKind::kHead && !model.tied_embeddings);
    if (has_table) {  // padded to what the ranks share
      bytes.parameters -= of_rank(model::parameter_counts(model, kinds).vocabulary);
      bytes.parameters += vocabulary_rows(job, choice) * static_cast<double>(model.hidden_size);
    }
    if (layer.kind == model::LayerKind::kHead) bytes.parameters += tied_copy(job, choice);
    if (model::has_experts(model, layer)) {
      const double experts = static_cast<double>(model.num_experts) / choice.expert;
      bytes.expert_parameters = experts * model::parameter_counts(model, kinds)
                                              .expert.of_rank(std::max(1, choice.expert_tensor), 1);
    }
    if (layer.kind == model::LayerKind::kMtpBlock) {
      const model::LayerSpec last =
          model::layers_of(model).at(static_cast<size_t>(model.num_layers));
      bytes.further_token =
          bytes.parameters - of_rank(model::parameters_of_layer(model, last, kinds));
    }
    bytes.persistent = persistent_elements(job, choice, layer);
  }
  bytes.adds = {.dense = bytes.parameters, .experts = bytes.expert_parameters};
}

}  // namespace smp::cost
