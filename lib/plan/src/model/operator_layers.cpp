#include <algorithm>
#include <cmath>

#include "model/alive_bytes.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/operators.h"

// The layers of a list, made of what is known of its operators.
namespace smp::model {
namespace {

bool has_matrix(const OperatorSpec& spec) { return rules_of(spec.kind).has_matrix; }

OperatorMemory memory_of(const PlacedOperator& placed, const LayerCall& call) {
  return rules_of(placed.spec.kind)
      .memory({placed.spec, placed.in, placed.out, call.micro_batch, call.dtype});
}

TensorPlace place_of(const LayerCall& call) { return {call.tensor_degree, call.tensor_rank}; }

int64_t bytes_of(const SampleShape& shape, const LayerCall& call) {
  return smp::bytes_of(call.dtype) * call.micro_batch * elements_of(shape);
}

// Follows lib/runtime/src/layers/operator_list.cpp allocation by allocation.
class LayerWalk {
 public:
  LayerWalk(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call)
      : place_(place_of(call)),
        operators_(operators_of(model, layer, place_)),
        call_(call),
        is_first_(layer.index == 0),
        makes_loss_(makes_loss(layer.kind)) {}

  LayerMemory memory() {
    LayerMemory memory;
    const Alive forward = this->forward();
    const Alive backward = this->backward(false);
    memory.output_bytes = makes_loss_ ? loss_bytes() : bytes_of(operators_.back().out, call_);
    memory.saved_bytes = forward.now();
    memory.forward_peak_bytes = forward.peak();
    memory.input_gradient_bytes = is_first_ ? 0 : bytes_of(operators_.front().in, call_);
    memory.backward_peak_bytes = backward.peak();
    memory.deferred_backward_peak_bytes =
        makes_loss_ ? backward.peak() : this->backward(true).peak();
    if (!makes_loss_) {
      const auto matrix = std::find_if(operators_.begin(), operators_.end(),
                                       [](const auto& placed) { return has_matrix(placed.spec); });
      SMP_CHECK(matrix != operators_.end());
      // Its two factors; the batch itself lives anyway.
      const bool of_batch = is_first_ && owner_of_input(matrix - operators_.begin()) < 0;
      memory.deferred_saved_bytes = of_batch ? 0 : bytes_of(matrix->in, call_);
      memory.deferred_bytes = bytes_of(matrix->out, call_) + memory.deferred_saved_bytes;
      memory.weight_peak_bytes = memory_of(*matrix, call_).weight_scratch_bytes;
    }
    return memory;
  }

 private:
  bool is_narrow() const { return smp::bytes_of(call_.dtype) == 2; }
  int64_t loss_bytes() const { return wide_bytes(call_.dtype); }
  // Maximum, sum and target's logit of each row: 16-bit logits keep them, and are widened a few
  // rows at a time.
  int64_t statistics_bytes() const { return wide_bytes(call_.dtype) * 3 * call_.micro_batch; }
  int64_t widened_rows_bytes() const {
    if (!is_narrow()) return 0;
    return wide_bytes(call_.dtype) * std::min<int64_t>(call_.micro_batch, 8) *
           elements_of(operators_.back().out);
  }

  // The operator that made what operator i reads; -1: the layer before.
  std::ptrdiff_t owner_of_input(std::ptrdiff_t i) const {
    do {
      --i;
    } while (i >= 0 && memory_of(operators_[static_cast<size_t>(i)], call_).is_view);
    return i;
  }
  bool owns_input(size_t i) const { return owner_of_input(static_cast<std::ptrdiff_t>(i)) >= 0; }

  Alive forward() const {
    Alive alive;
    for (size_t i = 0; i < operators_.size(); ++i) {
      const OperatorMemory op = memory_of(operators_[i], call_);
      if (op.is_view) continue;
      if (gathers(i)) gather(alive, operators_[i].in_cut);
      const bool in_place = op.works_in_place && owns_input(i);
      if (!in_place) alive.add(bytes_of(operators_[i].out, call_));
      alive.add(op.kept_bytes);
      alive.pass(op.forward_scratch_bytes, 0);
      const bool lets_go = !in_place && !op.keeps_input && owns_input(i);
      if (lets_go) alive.drop(bytes_of(operators_[i].in, call_));
    }
    if (makes_loss_) {
      alive.add(statistics_bytes());
      alive.pass(widened_rows_bytes(), 0);
      if (!is_narrow()) alive.drop(statistics_bytes());
      alive.add(loss_bytes());
    }
    return alive;
  }

  Alive backward(bool defers) const {
    Alive alive;
    if (makes_loss_) {
      alive.drop(loss_bytes());  // the logits' own gradient is among what was saved
      alive.pass(widened_rows_bytes(), 0);
      if (is_narrow()) alive.drop(statistics_bytes());
    }
    for (size_t i = operators_.size(); i-- > 0;) {
      const OperatorMemory op = memory_of(operators_[i], call_);
      if (op.is_view) continue;
      const bool is_matrix = has_matrix(operators_[i].spec);
      const bool wanted = !is_first_ || owns_input(i);
      if (wanted && !op.gradient_in_place) {
        alive.add(bytes_of(operators_[i].in, call_));
        alive.pass(op.gradient_scratch_bytes, 0);
      }
      if (is_matrix && defers) continue;  // both factors stay
      if (is_matrix) alive.pass(op.weight_scratch_bytes, 0);
      if (!op.gradient_in_place || !wanted) alive.drop(bytes_of(operators_[i].out, call_));
      alive.drop(op.kept_bytes);
      if (op.keeps_input && owns_input(i)) alive.drop(bytes_of(operators_[i].in, call_));
      if (gathers(i)) {  // of the gradient each rank takes its own
        alive.add(part_bytes(operators_[i].in_cut, place_));
        alive.drop(bytes_of(operators_[i].in, call_));
      }
    }
    return alive;
  }

  bool gathers(size_t i) const { return operators_[i].gathers && place_.degree > 1; }
  int64_t part_bytes(const ChannelCut& cut, const TensorPlace& place) const {
    return smp::bytes_of(call_.dtype) * call_.micro_batch * cut.size(place);
  }
  // All parts are sent as large as the largest, and then put side by side.
  void gather(Alive& alive, const ChannelCut& cut) const {
    const int64_t own = part_bytes(cut, place_), largest = part_bytes(cut, {place_.degree, 0});
    const int64_t padded = own < largest ? largest : 0;
    alive.add(padded);
    alive.add(place_.degree * largest);
    alive.drop(padded);
    alive.add(part_bytes(cut, {}));
    alive.drop(place_.degree * largest + own);
  }

  const TensorPlace place_;
  const std::vector<PlacedOperator> operators_;
  const LayerCall& call_;
  const bool is_first_, makes_loss_;
};

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

std::vector<OperatorMessage> operator_messages(const ModelSpec& model, const LayerSpec& layer,
                                               const LayerCall& call) {
  std::vector<OperatorMessage> messages;
  if (call.tensor_degree == 1) return messages;
  bool reads_batch = layer.index == 0;
  for (const PlacedOperator& placed : operators_of(model, layer, place_of(call))) {
    if (placed.gathers) {
      const int64_t largest = placed.in_cut.size({call.tensor_degree, 0});
      messages.push_back({mesh::CollectiveOp::kAllGather, call.micro_batch * largest, false});
    } else if (has_matrix(placed.spec) && placed.matrix_cut == MatrixCut::kInputs) {
      messages.push_back(
          {mesh::CollectiveOp::kAllReduce, call.micro_batch * elements_of(placed.out), false});
    } else if (has_matrix(placed.spec) && !reads_batch) {
      messages.push_back(
          {mesh::CollectiveOp::kAllReduce, call.micro_batch * elements_of(placed.in), true});
    }
    reads_batch = reads_batch && rules_of(placed.spec.kind)
                                     .memory({placed.spec, placed.in, placed.out, 1, call.dtype})
                                     .is_view;
  }
  return messages;
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

LayerMemory operator_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  return LayerWalk(model, layer, call).memory();
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
