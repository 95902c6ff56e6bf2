#include <algorithm>
#include <cmath>

#include "smp/plan/base/check.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/operators.h"

// The layers of a list, made of what is known of its operators.
namespace smp::model {
namespace {

bool has_matrix(const OperatorSpec& spec) { return rules_of(spec.kind).has_matrix; }

}  // namespace

std::vector<LayerSpec> operator_layers(const ModelSpec& model) {
  std::vector<LayerSpec> layers;
  const auto count = static_cast<int64_t>(model.operators.size());
  for (int64_t i = 0; i < count; ++i) {
    if (!has_matrix(model.operators[static_cast<size_t>(i)])) continue;
    LayerSpec layer;
    layer.kind = LayerKind::kOperators;
    layer.index = static_cast<int64_t>(layers.size());
    layer.name = "layers." + std::to_string(i);
    layer.first_operator = layers.empty() ? 0 : i;
    if (!layers.empty()) layers.back().end_operator = i;
    layers.push_back(std::move(layer));
  }
  SMP_CHECK(!layers.empty());
  layers.front().reads = BatchField::kImages;
  layers.back().end_operator = count;
  layers.back().kind = LayerKind::kLastOperators;
  layers.back().reads = BatchField::kLabels;
  return layers;
}

namespace {

// Walks a list from its beginning; what is cut depends on all that comes before.
class CutWalk {
 public:
  CutWalk(const ModelSpec& model, const TensorPlace& place)
      : place_(place), whole_(input_of(model)) {}

  PlacedOperator next(int64_t index, const OperatorSpec& spec) {
    const OperatorRules& rules = rules_of(spec.kind);
    PlacedOperator placed{.index = index, .spec = spec, .in = own(), .in_cut = cut()};
    if (rules.has_matrix) {
      const bool reads_parts = channels_ > 0;
      placed.matrix_cut = reads_parts ? MatrixCut::kInputs : MatrixCut::kOutputs;
      channels_ = reads_parts ? 0 : spec.out;
    } else if (rules.reads_all_channels && channels_ > 0) {
      placed.gathers = true;
      placed.in = whole_;
      channels_ = 0;
    }
    whole_ = rules.output(spec, whole_);
    placed.out = own();
    placed.out_cut = cut();
    return placed;
  }

 private:
  ChannelCut cut() const {
    if (channels_ == 0) return {};
    return {.channels = channels_, .unit = elements_of(whole_) / channels_};
  }
  SampleShape own() const {
    SampleShape shape = whole_;
    // Flat features are channels of several elements each.
    if (channels_ > 0) {
      shape[0] = shape[0] / channels_ * mesh::part_size(channels_, place_.degree, place_.rank);
    }
    return shape;
  }

  const TensorPlace place_;
  SampleShape whole_;
  int64_t channels_ = 0;  // that are cut
};

}  // namespace

std::vector<PlacedOperator> operators_of(const ModelSpec& model, const LayerSpec& layer,
                                         const TensorPlace& place) {
  std::vector<PlacedOperator> placed;
  CutWalk walk(model, place);
  for (int64_t i = 0; i < layer.end_operator; ++i) {
    PlacedOperator one = walk.next(i, model.operators.at(static_cast<size_t>(i)));
    if (i >= layer.first_operator) placed.push_back(std::move(one));
  }
  return placed;
}

std::vector<PlacedOperator> matrices_of(const ModelSpec& model, const TensorPlace& place) {
  LayerSpec all;
  all.end_operator = static_cast<int64_t>(model.operators.size());
  std::vector<PlacedOperator> placed = operators_of(model, all, place);
  std::erase_if(placed, [](const PlacedOperator& one) { return !has_matrix(one.spec); });
  return placed;
}

bool shares_loss(const ModelSpec& model) {
  return operators_of(model, operator_layers(model).back()).back().out_cut.is_cut();
}

// The matrix goes by the layer's name, which is its own; what else has parameters by its place in
// the list.
std::vector<ParameterSpec> operator_parameters(const ModelSpec& model, const LayerSpec& layer) {
  std::vector<ParameterSpec> parameters;
  for (const PlacedOperator& placed : operators_of(model, layer)) {
    const OperatorRules& rules = rules_of(placed.spec.kind);
    if (rules.parameters == nullptr) continue;
    const bool by_outputs = rules.has_matrix && placed.matrix_cut == MatrixCut::kOutputs;
    for (ParameterSpec& parameter : rules.parameters(placed.spec, placed.in)) {
      if (by_outputs) {
        parameter.split = TensorSplit::kRows;
      } else if (rules.has_matrix && !parameter.is_vector) {
        parameter.split = TensorSplit::kColumns;
        parameter.column_unit = parameter.cols / placed.in_cut.channels;
      }
      const std::string place = rules.has_matrix ? "" : std::to_string(placed.index) + ".";
      parameter.name = layer.name + "." + place + parameter.name;
      parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

void set_list_sizes(ModelSpec& model) {
  model.stack = Stack::kDecoder;
  model.position_embedding = PositionKind::kNone;
  model.tied_embeddings = false;
  model.num_heads = model.num_kv_heads = model.head_dim = 1;
  model.ffn_hidden_size = 0;
  const std::vector<SampleShape> shapes = output_shapes(model);
  const std::vector<LayerSpec> layers = operator_layers(model);
  model.num_layers = static_cast<int64_t>(layers.size()) - 1;
  model.vocab_size = elements_of(shapes.back());
  model.hidden_size = 1;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    const SampleShape& handed = shapes[static_cast<size_t>(layers[i].end_operator - 1)];
    model.hidden_size = std::max(model.hidden_size, elements_of(handed));
  }
}

}  // namespace smp::model
