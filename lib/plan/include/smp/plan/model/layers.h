#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/token_slices.h"
#include "smp/plan/spec/job_spec.h"

// A model is a sequence of layers. This header states what a layer is: its kind, its parameters and
// how tensor parallelism cuts them. What it does, and what that costs, is its program
// (smp/plan/program).
namespace smp::model {

enum class LayerKind {
  kEmbedding,      // token (and learned position) embedding
  kBlock,          // norm, attention, norm, MLP, with the model's attributes
  kCrossBlock,     // a block of the decoder of an encoder_decoder: attends to the encoder as well
  kHead,           // final norm (unless a kMtpBlock has it), vocabulary projection, cross-entropy
  kOperators,      // of a list (operators.h)
  kLastOperators,  // the last of a list, and cross-entropy
  kMoeBlock,       // a block whose MLP is a router and experts
  kMtpBlock,       // predicts a further token: norms, projection, a block; lies before the head
};

constexpr bool makes_loss(LayerKind kind) {
  return kind == LayerKind::kHead || kind == LayerKind::kLastOperators;
}

// Layers that may be recomputed or offloaded, and are dealt to stages by count.
constexpr bool is_transformer_block(LayerKind kind) {
  return kind != LayerKind::kEmbedding && !makes_loss(kind);
}

// The fields of one sample. kDocumentStarts gives, for each token, the position in its sample, from
// 0, of the first token of its document. kFurtherTokens gives, for the d-th layer that predicts a
// further token, the d-th token behind each; none (data::kNoTarget) where that is in another sample
// or document.
enum class BatchField { kTokens, kTargets, kImages, kLabels, kDocumentStarts, kFurtherTokens };
inline constexpr int kBatchFields = 6;

struct LayerSpec {
  LayerKind kind = LayerKind::kEmbedding;
  int64_t index = 0;  // in the model's sequence: 0 = embedding, 1..L = blocks, last = head
  std::string name;   // "embedding", "layers.0", ..., "head"
  std::optional<BatchField> reads = std::nullopt;  // of the batch, behind its other inputs
  int64_t first_operator = 0, end_operator = 0;    // of model.operators
};

// The layers in the order of the forward pass: embedding, blocks, head; or the operators of a list.
std::vector<LayerSpec> layers_of(const ModelSpec& model);

enum class Init { kNormal, kZeros, kOnes };

// How the tensor-parallel ranks share one parameter.
enum class TensorSplit {
  kReplicated,  // every rank holds all of it; gradients come out equal
  kRows,        // output features (or vocabulary rows, or heads) are cut; part_begin/part_size
  kColumns,     // input features are cut
  kKvHeads,     // rows by KV head; with t > KV heads, t / KV heads ranks hold the same head
};

// Weights are [out, in] as in torch.nn.Linear; vectors have cols == 1 and is_vector set.
struct ParameterSpec {
  std::string name;  // e.g. "layers.0.attention.q.weight"
  int64_t rows = 0;
  int64_t cols = 1;
  bool is_vector = false;
  TensorSplit split = TensorSplit::kReplicated;
  Init init = Init::kNormal;
  double init_std = 0;        // kNormal
  bool weight_decay = false;  // matrices yes; norms, biases and position tables no
  bool is_expert = false;     // of experts: all of a layer's in one matrix, rows by expert
  bool follows_load = false;  // moved by the experts' load, not by the optimizer
  int64_t row_unit = 1;       // kRows: rows that stay together
  int64_t column_unit = 1;    // kColumns: columns that stay together

  int64_t size() const { return rows * cols; }
};

// In the order of a flat buffer: q, k and v weights are neighbours, and so are their biases, and
// gate and up, so that one matmul can use each group as a single matrix. A tied head has no weight
// of its own here. Kinds that tensor ranks do not share are replicated.
std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const LayerSpec& layer,
                                         const TensorKinds& kinds = {});

// Whether these are the same of both layers, but for their names.
bool have_equal_parameters(const ModelSpec& model, const LayerSpec& a, const LayerSpec& b);

// Parameters of the whole model; a tied weight counts once. By parts: parameter_counts.h.
int64_t parameter_count(const ModelSpec& model);

// Half-open rectangle of a parameter.
struct Box {
  int64_t row_begin = 0, row_end = 0;
  int64_t col_begin = 0, col_end = 0;

  int64_t rows() const { return row_end - row_begin; }
  int64_t cols() const { return col_end - col_begin; }
  int64_t size() const { return rows() * cols(); }
  bool operator==(const Box&) const = default;
};

// The rectangle of a parameter that tensor rank `tensor_rank` of `tensor_degree` holds.
Box tensor_box(const ModelSpec& model, const ParameterSpec& parameter, int64_t tensor_degree,
               int64_t tensor_rank);

// The rows of the experts that each of `degree` ranks which share them holds.
Box expert_box(const ParameterSpec& parameter, int64_t degree, int64_t part);

// Ranks that hold the same KV head: max(1, t / num_kv_heads).
int64_t kv_copies(const ModelSpec& model, int64_t tensor_degree);

// Whether the queries of a block see a window of the keys alone.
bool has_window(const ModelSpec& model, const LayerSpec& layer);

// In an encoder_decoder: whether the block belongs to the encoder; whether it is the first or last
// of its stack.
bool is_in_encoder(const ModelSpec& model, const LayerSpec& layer);
bool opens_decoder(const ModelSpec& model, const LayerSpec& layer);
bool closes_stack(const ModelSpec& model, const LayerSpec& layer);

// Of a kMtpBlock: how many tokens behind the next one it predicts, from 1 on. The first one has the
// model's final norm, whose result it and the head read.
int64_t mtp_depth(const ModelSpec& model, const LayerSpec& layer);
// Whether layers at the end of the model use the token embedding: a tied head, or those that
// predict further tokens.
bool reuses_embedding(const ModelSpec& model);
bool reuses_embedding(const ModelSpec& model, const LayerSpec& layer);

// The factor on the hidden state before a head: hidden_size^-0.5 if the head of an encoder_decoder
// is tied (Raffel et al. 2020: T5), else 1.
double head_scale(const ModelSpec& model);

// What sines and cosines are multiplied with: 1 without yarn and longrope.
double rope_attention_factor(const ModelSpec& model);

// The factor on scores before their softmax: 1 / sqrt(width of a key), in latent attention with
// yarn times the square of its m(rope_mscale_all_dim) (DeepSeek-V3), and 1 with relative
// positions (Raffel et al. 2020: T5 has the factor in the initial weights instead).
double score_scale(const ModelSpec& model);

// The input of one call of a layer.
struct LayerCall {
  int64_t micro_batch = 1;
  int64_t sequence_length = 0;
  int64_t tensor_degree = 1;
  int64_t tensor_rank = 0;
  DType dtype = DType::kF32;
  bool sequence_parallel = false;
  TensorKinds kinds = {};
  Fusions fusions = {};
  ContextPlace context = {};  // among the ranks that share a sequence; `sequence_length` is a part
  // Ranks that share the experts, and those that cut each.
  int64_t expert_degree = 1;
  int64_t expert_tensor_degree = 1;
  // In other frameworks (program/habits.h).
  double fullest_experts = 1;  // tokens of the fullest rank's experts, over the mean

  // Number of ranks that share the matrices of a kind.
  int64_t attention_degree() const { return kinds.attention ? tensor_degree : 1; }
  int64_t vocabulary_degree() const { return kinds.embedding ? tensor_degree : 1; }
  // This rank's part of `count` rows of a kind, which is shared or not.
  int64_t part_of(int64_t count, bool is_shared) const {
    return is_shared ? mesh::part_size(count, tensor_degree, tensor_rank) : count;
  }
  // Which tokens of a sample the rank has, and which it attends from.
  TokenSlices slices() const { return token_slices(sequence_length * context.degree(), context); }
  TokenSlices attended() const { return ring_slices(sequence_length * context.degree(), context); }
  // Tokens of the microbatch, and those that this rank has between the layers' matrices.
  int64_t tokens() const { return micro_batch * sequence_length; }
  int64_t own_tokens() const { return sequence_parallel ? tokens() / tensor_degree : tokens(); }
};

// The part of a parameter that such a rank holds.
Box parameter_box(const ModelSpec& model, const ParameterSpec& parameter, const LayerCall& call);

}  // namespace smp::model
