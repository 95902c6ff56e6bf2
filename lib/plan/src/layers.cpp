#include "smp/plan/layers.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

// Collects the parameters of one layer in flat order.
class ParameterList {
 public:
  explicit ParameterList(std::string prefix) : prefix_(std::move(prefix)) {}

  void matrix(const std::string& name, int64_t rows, int64_t cols, TensorSplit split, double std) {
    parameters_.push_back({.name = prefix_ + name,
                           .rows = rows,
                           .cols = cols,
                           .split = split,
                           .init = Init::kNormal,
                           .init_std = std,
                           .weight_decay = true});
  }

  void vector(const std::string& name, int64_t size, TensorSplit split, Init init) {
    parameters_.push_back(
        {.name = prefix_ + name, .rows = size, .is_vector = true, .split = split, .init = init});
  }

  void norm(const std::string& name, int64_t size, bool bias) {
    vector(name + ".weight", size, TensorSplit::kReplicated, Init::kOnes);
    if (bias) vector(name + ".bias", size, TensorSplit::kReplicated, Init::kZeros);
  }

  std::vector<ParameterSpec> take() { return std::move(parameters_); }
  ParameterSpec& last() { return parameters_.back(); }

 private:
  std::string prefix_;
  std::vector<ParameterSpec> parameters_;
};

// GPT-2 scales the matrices that write to the residual stream by 1/sqrt(number of such writes)
// (Radford et al. 2019, section 2.3); transformers does the same for GPT-2. We do so for Llama too.
double residual_std(const ModelSpec& model) {
  return model.initializer_range / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

// Weights first, then their biases, so that each kind is one contiguous matrix or vector.
void add_attention(ParameterList& list, const ModelSpec& model, bool bias) {
  const int64_t q_rows = model.num_heads * model.head_dim;
  const int64_t kv_rows = model.num_kv_heads * model.head_dim;
  const double std = model.initializer_range;
  list.matrix("attention.q.weight", q_rows, model.hidden_size, TensorSplit::kRows, std);
  list.matrix("attention.k.weight", kv_rows, model.hidden_size, TensorSplit::kKvHeads, std);
  list.matrix("attention.v.weight", kv_rows, model.hidden_size, TensorSplit::kKvHeads, std);
  if (bias) {
    list.vector("attention.q.bias", q_rows, TensorSplit::kRows, Init::kZeros);
    list.vector("attention.k.bias", kv_rows, TensorSplit::kKvHeads, Init::kZeros);
    list.vector("attention.v.bias", kv_rows, TensorSplit::kKvHeads, Init::kZeros);
  }
  list.matrix("attention.output.weight", model.hidden_size, q_rows, TensorSplit::kColumns,
              residual_std(model));
  if (bias) {
    list.vector("attention.output.bias", model.hidden_size, TensorSplit::kReplicated, Init::kZeros);
  }
}

std::vector<ParameterSpec> gpt2_block(const ModelSpec& model, const std::string& prefix) {
  const int64_t h = model.hidden_size;
  const int64_t f = model.ffn_hidden_size;
  ParameterList list(prefix);
  list.norm("attention_norm", h, true);
  add_attention(list, model, true);
  list.norm("mlp_norm", h, true);
  list.matrix("mlp.up.weight", f, h, TensorSplit::kRows, model.initializer_range);
  list.vector("mlp.up.bias", f, TensorSplit::kRows, Init::kZeros);
  list.matrix("mlp.down.weight", h, f, TensorSplit::kColumns, residual_std(model));
  list.vector("mlp.down.bias", h, TensorSplit::kReplicated, Init::kZeros);
  return list.take();
}

std::vector<ParameterSpec> llama_block(const ModelSpec& model, const std::string& prefix) {
  const int64_t h = model.hidden_size;
  const int64_t f = model.ffn_hidden_size;
  ParameterList list(prefix);
  list.norm("attention_norm", h, false);
  add_attention(list, model, false);
  list.norm("mlp_norm", h, false);
  list.matrix("mlp.gate.weight", f, h, TensorSplit::kRows, model.initializer_range);
  list.matrix("mlp.up.weight", f, h, TensorSplit::kRows, model.initializer_range);
  list.matrix("mlp.down.weight", h, f, TensorSplit::kColumns, residual_std(model));
  return list.take();
}

std::vector<ParameterSpec> embedding(const ModelSpec& model, const std::string& prefix) {
  ParameterList list(prefix);
  list.matrix("tokens.weight", model.vocab_size, model.hidden_size, TensorSplit::kRows,
              model.initializer_range);
  if (model.family == ModelFamily::kGpt2) {
    list.matrix("positions.weight", model.max_positions, model.hidden_size,
                TensorSplit::kReplicated, model.initializer_range);
    list.last().weight_decay = false;
  }
  return list.take();
}

std::vector<ParameterSpec> head(const ModelSpec& model, const std::string& prefix) {
  ParameterList list(prefix);
  list.norm("norm", model.hidden_size, model.family == ModelFamily::kGpt2);
  if (!model.tied_embeddings) {
    list.matrix("weight", model.vocab_size, model.hidden_size, TensorSplit::kRows,
                model.initializer_range);
  }
  return list.take();
}

}  // namespace

std::vector<LayerSpec> layers_of(const ModelSpec& model) {
  const LayerKind block =
      model.family == ModelFamily::kGpt2 ? LayerKind::kGpt2Block : LayerKind::kLlamaBlock;
  std::vector<LayerSpec> layers;
  layers.push_back({LayerKind::kEmbedding, 0, "embedding"});
  for (int64_t i = 0; i < model.num_layers; ++i) {
    layers.push_back({block, i + 1, "layers." + std::to_string(i)});
  }
  layers.push_back({LayerKind::kHead, model.num_layers + 1, "head"});
  return layers;
}

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const LayerSpec& layer) {
  const std::string prefix = layer.name + ".";
  switch (layer.kind) {
    case LayerKind::kEmbedding: return embedding(model, prefix);
    case LayerKind::kGpt2Block: return gpt2_block(model, prefix);
    case LayerKind::kLlamaBlock: return llama_block(model, prefix);
    case LayerKind::kHead: return head(model, prefix);
  }
  check_failed(__FILE__, __LINE__, "unknown layer kind");
}

int64_t parameter_count(const ModelSpec& model) {
  int64_t count = 0;
  for (const LayerSpec& layer : layers_of(model)) {
    for (const ParameterSpec& parameter : parameters_of(model, layer)) count += parameter.size();
  }
  return count;
}

int64_t kv_copies(const ModelSpec& model, int64_t tensor_degree) {
  return std::max<int64_t>(1, tensor_degree / model.num_kv_heads);
}

Box tensor_box(const ModelSpec& model, const ParameterSpec& parameter, int64_t tensor_degree,
               int64_t tensor_rank) {
  SMP_CHECK(tensor_rank >= 0 && tensor_rank < tensor_degree);
  Box box{0, parameter.rows, 0, parameter.cols};
  // Cuts [0, count) for the part-th of `parts` ranks.
  const auto cut = [](int64_t count, int64_t parts, int64_t part, int64_t& begin, int64_t& end) {
    begin = part_begin(count, parts, part);
    end = begin + part_size(count, parts, part);
  };
  switch (parameter.split) {
    case TensorSplit::kReplicated: break;
    case TensorSplit::kRows:
      cut(parameter.rows, tensor_degree, tensor_rank, box.row_begin, box.row_end);
      break;
    case TensorSplit::kColumns:
      cut(parameter.cols, tensor_degree, tensor_rank, box.col_begin, box.col_end);
      break;
    case TensorSplit::kKvHeads: {
      const int64_t copies = kv_copies(model, tensor_degree);
      SMP_CHECK_EQ(tensor_degree % copies, 0);
      SMP_CHECK_EQ(model.num_kv_heads % (tensor_degree / copies), 0);
      cut(parameter.rows, tensor_degree / copies, tensor_rank / copies, box.row_begin, box.row_end);
      break;
    }
  }
  return box;
}

LayerFlops flops_of(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  if (layer.kind == LayerKind::kEmbedding) return {};
  const double b = static_cast<double>(call.micro_batch);
  const double s = static_cast<double>(call.sequence_length);
  double multiply_adds = 0;
  for (const ParameterSpec& parameter : parameters_of(model, layer)) {
    if (parameter.is_vector) continue;
    const Box box = tensor_box(model, parameter, call.tensor_degree, call.tensor_rank);
    multiply_adds += b * s * static_cast<double>(box.size());
  }
  if (layer.kind == LayerKind::kHead) {
    if (model.tied_embeddings) {
      const int64_t rows = part_size(model.vocab_size, call.tensor_degree, call.tensor_rank);
      multiply_adds += b * s * static_cast<double>(rows * model.hidden_size);
    }
  } else {
    // Scores and weighted values, for each head: s*s/2 pairs of head_dim multiply-adds, twice.
    const double width = static_cast<double>(model.num_heads * model.head_dim) /
                         static_cast<double>(call.tensor_degree);
    multiply_adds += 2 * b * (s * s / 2) * width;
  }
  // Backward multiplies each pair of operands twice: once for each operand's gradient.
  return {.forward = 2 * multiply_adds, .backward = 4 * multiply_adds};
}

}  // namespace smp
