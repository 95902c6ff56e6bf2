#pragma once

#include <cstdint>
#include <string_view>

#include "smp/plan/model/operators.h"
#include "smp/plan/model/token_slices.h"
#include "smp/plan/spec/job_spec.h"

// The constants of operations (operation.h). What the seed, the step and the samples give is added
// by a call.
namespace smp::program {

// Where in a layer dropout is; part of its random key.
enum class DropoutSite : uint32_t {
  kOutput,           // of an embedding, of a dropout layer, of an encoder_decoder's final norms
  kAttention,        // the softmax weights
  kAttentionOutput,  // the attention branch's result
  kCrossAttention,   // the same for a decoder's attention to the encoder
  kCrossAttentionOutput,
  kMlpOutput,  // the MLP branch's result
};

// The index of the layer that calls, whichever that is: alike layers share a program.
inline constexpr int64_t kOwnLayer = -1;

// Dropout of a tensor whose rows are those of several samples. Off where a call does not train.
struct DropoutAttributes {
  double share = 0;           // of elements that go; 0 = none
  int64_t layer = kOwnLayer;  // with `site` the key
  DropoutSite site = DropoutSite::kOutput;
  int64_t sample_rows = 1;         // rows of each sample in the microbatch
  int64_t first_row = 0;           // of these in the sample
  model::TokenSlices slices = {};  // of the sample's tokens, which these are
  int64_t first_col = 0;           // of the tensor in the whole row
  int64_t rows_before = 0;         // of the microbatch, before those of the tensor

  bool is_on() const { return share > 0; }
};

struct NormAttributes {
  bool centered = true;  // LayerNorm; else RMSNorm
  double epsilon = 0;
};

// Of the branch that is added, and of the norm of the sum.
struct SumAndNormAttributes {
  DropoutAttributes dropout;
  NormAttributes norm;
};

// What is multiplied by a constant, beside a factor that a call may give.
struct ProductAttributes {
  double scale = 1;
};

// Pairs whose frequencies longrope divides: heads of up to 128 elements.
inline constexpr int64_t kMostFactorPairs = 64;

// The elements of a head that rotate with its position, and how fast (ModelSpec's rope keys).
struct RotaryAttributes {
  int64_t dim = 0;  // the first elements of a head; 0 = none
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_positions = 8192;
  double beta_fast = 32, beta_slow = 1;  // yarn
  bool truncates = true;                 // yarn: its range ends at whole pairs
  double attention_factor = 1;           // of sines and cosines
  // longrope: what the frequencies are divided by. transformers has them in fp32 as well.
  float pair_factors[kMostFactorPairs] = {};
};

struct AttentionAttributes {
  int64_t batch = 0;
  int64_t sequence = 0;  // queries of a sample
  int64_t keys = 0;      // of a sample
  bool causal = true;
  int64_t window = 0;    // keys that a query sees; 0 = all
  int64_t heads = 0;     // of this rank
  int64_t kv_heads = 0;  // of this rank
  int64_t first_head = 0;
  int64_t first_sink = 0;        // of these heads, among the given sinks
  int64_t head_dim = 0;          // of queries and keys
  int64_t value_dim = 0;         // of values; 0 = head_dim
  double scale = 1;              // of the scores
  int64_t relative_buckets = 0;  // 0 = no relative positions
  RotaryAttributes rotary;
  int64_t context_degree = 1;  // ranks that have a part of the keys each
  // Of the sample, where that is above 1 and our engine runs it: this rank's queries, and keys.
  model::TokenSlices slices = {};
  bool has_head_norms = false;
  bool centered_norms = false;
  double norm_epsilon = 0;
  DropoutAttributes weight_dropout;  // of the softmax weights

  constexpr int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
};

// Context-parallel ranks that exchange heads: rows of this rank's tokens with all heads become rows
// of all their tokens with its part of the heads, or back (Jacobs et al. 2023, arXiv:2309.14509).
struct ExchangeAttributes {
  std::string_view label;  // as in the traffic of a step: "context.forward"
  bool to_heads = true;    // else back to tokens
  int64_t degree = 1;      // ranks
  int64_t batch = 0;       // samples, of which a rank has two slices (token_slices.h)
  // Columns of each side by side, of all heads: each rank takes an even part of every one.
  int64_t columns[3] = {};
};

// The widths of a head's parts in latent attention, and the heads of this rank (DeepSeek-AI 2024,
// arXiv:2405.04434, section 2.1).
struct LatentAttributes {
  int64_t heads = 0;
  int64_t plain = 0;   // elements of queries and keys without position
  int64_t rotary = 0;  // those that rotate; all heads' keys share them
  int64_t value = 0;

  constexpr int64_t head_dim() const { return plain + rotary; }
};

// The norms of queries and of keys over all heads, in rows of [q heads | k heads | v heads].
struct QkNormAttributes {
  int64_t q_cols = 0, k_cols = 0;  // of this rank
  int64_t ranks = 1;               // that share the heads, or hold copies of a KV head
  double epsilon = 0;
};

// kGelu: the tanh form; kGeluSigmoid: x * sigmoid(1.702 x)
enum class ActivationKind { kGelu, kGeluErf, kGeluSigmoid, kRelu, kSilu };

struct ActivationAttributes {
  ActivationKind activation = ActivationKind::kGelu;
  bool gated = false;  // of [rows, gate | up]: activation(gate) * up
  // Of experts: activation(min(gate, limit)) * (up within -limit and limit, + offset); 0 = none.
  double limit = 0;
  double offset = 0;
};

// Rows of a table by ids, or of positions. A rank may have a part of either.
struct RowsAttributes {
  int64_t table_begin = 0;  // the first row of the rank's part of the table
  int64_t first_id = 0;     // the first that is used of the ids; for positions, of the tokens
  int64_t sequence = 1;     // tokens of a sample that the rank has
  // Which these are of the sample, and those for which the batch has the begins of documents.
  model::TokenSlices slices = {}, attended = {};
  int64_t attended_tokens = 1;  // of a sample
};

// Where in a wider matrix columns are.
struct ColumnsAttributes {
  int64_t first = 0;
};

struct LossAttributes {
  int64_t begin = 0;            // the first entry of the rank's part of the vocabulary
  bool is_shared = false;       // the tensor ranks have a part each
  bool counts_correct = false;  // an evaluation counts the rows whose target has the largest logit
  bool sums_apart = false;      // sums and the targets' logits are a message each
  int64_t first_target = 0;     // the first that is used of the targets
};

// A message to all tensor ranks. One that does not wait is followed by kWait.
struct MessageAttributes {
  std::string_view label;  // as in the traffic of a step: "tensor.forward"
  bool waits = true;
};

// The rows of a tensor of all tokens that are this rank's.
struct OwnTokensAttributes {
  int64_t first = 0;
};

// How tokens choose experts.
struct RouterAttributes {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  RouterKind kind = RouterKind::kSoftmax;
  bool normalizes = true;  // a token's weights, to a sum of 1
  double scale = 1;        // of the weights, behind that
  int64_t groups = 1, groups_per_token = 1;
  int64_t capacity = 0;              // tokens that an expert takes; 0 = all
  double balance_loss = 0;           // factor of the balancing loss
  int64_t balance_tokens = 0;        // over which it takes its means: a microbatch or a sequence
  model::ContextPlace context = {};  // ranks that have a part of these each
  bool balances_step = false;        // by the experts' tokens of the global batch
  double z_loss = 0;                 // factor of the mean square of the scores' logsumexp

  // Of a microbatch of so many tokens here.
  constexpr int64_t segments(int64_t tokens) const {
    return tokens * context.degree() / balance_tokens;
  }
  // Whether the balancing loss needs the choices of the context ranks' tokens.
  constexpr bool sums_choices() const {
    return balance_loss > 0 && !balances_step && context.degree() > 1;
  }
};

// The experts of a rank, whose matrices lie in one, rows by expert.
struct ExpertAttributes {
  int64_t first = 0;  // of all experts
  int64_t count = 1;
  int64_t tokens = 0;     // the most that may go to one of them
  int64_t per_token = 1;  // experts that a token goes to
  ActivationAttributes activation;
  double expected_rows = 0;  // of all of them, on average; there may be more
  // Of the tokens those whose rows are sorted; 0 = all.
  int64_t first_token = 0, own_tokens = 0;
};
constexpr bool sorts_token(const ExpertAttributes& experts, int64_t token) {
  return experts.own_tokens == 0 ||
         (token >= experts.first_token && token < experts.first_token + experts.own_tokens);
}

// Ranks that share experts: rows go to the ranks of their experts, or back.
struct RowExchangeAttributes {
  std::string_view label;    // as in the traffic of a step: "expert.forward"
  int64_t degree = 1;        // ranks
  double expected_rows = 0;  // that a rank sends, its own among them, on average
  bool waits = true;         // else a kWait stands behind it
};

// Products of an expert's rows take a multiple of this many, so that there are few different
// shapes: oneDNN makes code for each.
inline constexpr int64_t kExpertRowMultiple = 16;
constexpr int64_t padded_expert_rows(int64_t rows) {
  return (rows + kExpertRowMultiple - 1) / kExpertRowMultiple * kExpertRowMultiple;
}

// The selective scan of Mamba-2 with the convolution ahead of it (Dao and Gu 2024,
// arXiv:2405.21060), for the heads of this rank.
struct ScanAttributes {
  double flops = 0;       // of a forward
  int64_t convolved = 0;  // columns that the convolution makes: the stream, B and C
  int64_t inner = 0;      // of the stream
  double states = 0;      // fp32 numbers of chunks' states, by token
};

// An operator of a list of layers, on samples of these shapes.
struct ImageAttributes {
  OperatorSpec spec;
  SampleShape in, out;
};

struct ChannelAttributes {
  model::ChannelCut cut;
  model::TensorPlace place;
};

}  // namespace smp::program
