#include <algorithm>

#include "alive_bytes.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"
#include "smp/plan/layer_tensors.h"
#include "smp/plan/layers.h"
#include "smp/plan/operators.h"
#include "smp/plan/parameter_counts.h"

// Follows lib/runtime/src/layers allocation by allocation: each add() and drop() below is one
// tensor there, in the same order. tests/runtime/layers_memory_test.cpp compares them to the byte.
namespace smp {
namespace {

int64_t tokens_of(const LayerCall& call) { return call.micro_batch * call.sequence_length; }
bool is_narrow(const LayerCall& call) { return bytes_of(call.dtype) == 2; }
int64_t wide_bytes(const LayerCall& call) { return wide_bytes(call.dtype); }

// The product of [rows, depth] and the transpose of [cols, depth], which is kept. fp16 goes by way
// of fp32 copies.
void add_product(Alive& alive, const LayerCall& call, int64_t rows, int64_t depth, int64_t cols) {
  const int64_t bytes = bytes_of(call.dtype) * rows * cols;
  if (call.dtype != DType::kF16) return alive.add(bytes);
  const int64_t wide_factors = wide_bytes(call) * depth * (rows + cols);
  const int64_t wide_result = wide_bytes(call) * rows * cols;
  alive.add(wide_factors);
  alive.add(wide_result);
  alive.drop(wide_factors);
  alive.add(bytes);
  alive.drop(wide_result);
}

int64_t weight_gradient_bytes(const LayerCall& call, int64_t rows, int64_t cols) {
  return weight_gradient_bytes(call.dtype, tokens_of(call), rows, cols);
}

// Columns of one block's tensors, and the bytes of those.
struct BlockTensors {
  BlockTensors(const ModelSpec& model, const LayerCall& call)
      : is_parallel(model.parallel_residual),
        shares_norm(model.shared_norm),
        drops(model.hidden_dropout > 0) {
    const int64_t element = bytes_of(call.dtype), wide = wide_bytes(call);
    const int64_t s = call.sequence_length;
    const int64_t heads = model.num_heads / call.tensor_degree;
    const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / call.tensor_degree);
    const bool centered = model.norm == NormKind::kLayerNorm;

    tokens = tokens_of(call);
    h = model.hidden_size;
    packed_cols = (heads + 2 * kv_heads) * model.head_dim;
    attended_cols = heads * model.head_dim;
    width = part_size(model.ffn_hidden_size, call.tensor_degree, call.tensor_rank);
    up_cols = (is_gated(model.mlp) ? 2 : 1) * width;

    hidden = element * tokens * h;
    stats = wide * tokens * (centered ? 2 : 1);  // mean and 1/deviation; RMSNorm: 1/rms
    packed = element * tokens * packed_cols;     // q, k and v
    attended = element * tokens * attended_cols;
    log_sums = wide * tokens * heads;
    activated = element * tokens * width;
    up = element * tokens * up_cols;

    kv_cols = 2 * kv_heads * model.head_dim;
    kv = element * tokens * kv_cols;
    q_gradient = weight_gradient_bytes(call, attended_cols, h);
    kv_gradient = weight_gradient_bytes(call, kv_cols, h);
    qkv_gradient = weight_gradient_bytes(call, packed_cols, h);
    output_gradient = weight_gradient_bytes(call, h, attended_cols);
    up_gradient = weight_gradient_bytes(call, up_cols, h);
    down_gradient = weight_gradient_bytes(call, h, width);

    // Attention, a head at a time: q, k, v and (backward) the output's gradient, [s, head_dim] or
    // transposed with rows of a multiple of 32; the rotary table; scores of 8 queries forward, of a
    // block and their gradients backward; 16 elements that are read and ignored. Where elements are
    // 16-bit or heads have norms, the gradients of q, k and v stand beside them; of 16-bit elements
    // the output too, forward 8 rows of it.
    const int64_t row = (s + 31) / 32 * 32;
    const int64_t head = s * model.head_dim;
    const int64_t turned = model.head_dim * row;
    const int64_t rotations =
        model.position_embedding == PositionKind::kRotary ? s * rotary_dim_of(model) : 0;
    const int64_t head_stats = model.qk_norm ? 2 * s : 0;
    const int64_t beside = (is_narrow(call) || model.qk_norm ? 3 : 0) + (is_narrow(call) ? 1 : 0);
    forward_scratch = wide * (2 * head + turned + 8 * row + rotations + head_stats +
                              (is_narrow(call) ? 8 * model.head_dim : 0) + 16);
    backward_scratch = wide * ((3 + beside) * head + 2 * turned + 2 * kAttentionQueryBlock * row +
                               rotations + 2 * head_stats + 16);
    // Relative positions: a head's numbers by distance, and backward their gradients.
    if (model.position_embedding == PositionKind::kRelative) {
      table = element * kRelativeBuckets * heads;
      table_gradient = wide * kRelativeBuckets * heads;
      diagonals = wide * heads * (2 * s - 1);
    }
    // Gradients of the norms of queries and keys.
    head_norms = model.qk_norm ? wide * (centered ? 4 : 2) * model.head_dim : 0;
  }

  bool is_parallel, shares_norm, drops;
  int64_t tokens, h, packed_cols, attended_cols, kv_cols, width, up_cols;
  int64_t hidden, stats, packed, attended, kv, log_sums, activated, up;
  int64_t qkv_gradient, q_gradient, kv_gradient, output_gradient, up_gradient, down_gradient;
  int64_t table = 0, table_gradient = 0, diagonals = 0;
  int64_t forward_scratch, backward_scratch, head_norms;
};

void attention_forward(Alive& forward, const BlockTensors& t, const LayerCall& call) {
  forward.add(t.stats);
  forward.add(t.hidden);  // the norm's result, while it is projected
  add_product(forward, call, t.tokens, t.h, t.packed_cols);
  forward.drop(t.hidden);
  forward.add(t.attended);
  forward.add(t.log_sums);
  forward.pass(t.forward_scratch + t.diagonals, 0);
  add_product(forward, call, t.tokens, t.attended_cols, t.h);  // x1
}

void mlp_forward(Alive& forward, const BlockTensors& t, const LayerCall& call) {
  if (!t.shares_norm) forward.add(t.stats);
  forward.add(t.hidden);
  add_product(forward, call, t.tokens, t.h, t.up_cols);
  forward.drop(t.hidden);
  forward.add(t.activated);
  add_product(forward, call, t.tokens, t.width, t.h);  // y
  forward.drop(t.activated);
}

Alive block_forward(const BlockTensors& t, const LayerCall& call) {
  Alive forward;
  attention_forward(forward, t, call);
  mlp_forward(forward, t, call);
  if (t.is_parallel) forward.drop(t.hidden);  // x1
  return forward;
}

// A backward under way. With `put_off` the factors of the weights' gradients stay, and their
// products are not made.
struct Backward {
  Alive& alive;
  const BlockTensors& t;
  const LayerCall& call;
  bool put_off;

  void weight_gradient(int64_t bytes, int64_t factors) const {
    if (put_off) return;
    alive.pass(bytes, 0);
    alive.drop(factors);
  }

  // The gradient of a branch's result with its dropout.
  int64_t dropped() const { return t.drops ? t.hidden : 0; }

  // Up to the gradient of the norm's result.
  void mlp() const {
    alive.add(dropped());
    // Gradient of the activation, exchanged with what was saved as `up`; the activation is made
    // again in one of the two.
    add_product(alive, call, t.tokens, t.h, t.width);
    weight_gradient(t.down_gradient, t.activated + dropped());
    add_product(alive, call, t.tokens, t.up_cols, t.h);
    alive.add(t.hidden);  // the norm's result again
    weight_gradient(t.up_gradient, t.hidden + t.up);
    if (!t.is_parallel) alive.drop(t.hidden);  // the branch's input
    if (!t.shares_norm) alive.drop(t.stats);
  }

  // What was kept of queries, keys and values becomes their gradients. `diagonals` of relative
  // positions, whose table's gradient is new with `makes_table`.
  void heads(int64_t diagonals, bool makes_table) const {
    alive.add(dropped());
    weight_gradient(t.output_gradient, 0);
    add_product(alive, call, t.tokens, t.h, t.attended_cols);  // of the attention's output
    if (!put_off) alive.drop(dropped());
    const int64_t table_gradient = diagonals > 0 ? t.table_gradient : 0;
    alive.add(table_gradient);
    alive.pass(t.backward_scratch + 2 * diagonals + t.head_norms, 0);
    if (table_gradient > 0 && is_narrow(call)) alive.pass(t.table, 0);
    alive.drop(table_gradient);
    if (makes_table) alive.add(t.table);
    alive.drop(t.attended);
    if (!put_off) alive.drop(t.attended);
    alive.drop(t.log_sums);
  }

  void attention(bool makes_table) const {
    heads(t.diagonals, makes_table);
    add_product(alive, call, t.tokens, t.packed_cols, t.h);  // gradient of x
    alive.add(t.hidden);
    weight_gradient(t.qkv_gradient, t.hidden + t.packed);
  }

  // The gradient of keys' and values' weights is never put off: their factor, the memory, belongs
  // to other blocks as well.
  void cross_attention(bool makes_memory_gradient) const {
    heads(0, false);
    add_product(alive, call, t.tokens, t.attended_cols, t.h);
    alive.add(t.hidden);
    weight_gradient(t.q_gradient, t.hidden + t.attended);
    add_product(alive, call, t.tokens, t.kv_cols, t.h);  // gradient of the memory
    if (!makes_memory_gradient) alive.drop(t.hidden);
    alive.pass(t.kv_gradient, 0);
    alive.drop(t.kv);
  }
};

Alive block_backward(const BlockTensors& t, const LayerCall& call, bool makes_table, bool put_off) {
  Alive alive;
  const Backward backward{alive, t, call, put_off};
  backward.mlp();
  backward.attention(makes_table);
  return alive;
}

// Of the factors of the weights' gradients each lives until its last product; the output's gradient
// is one, and the caller's until then. With dropout each branch has its own.
void mlp_weights(Alive& weights, const BlockTensors& t) {
  const bool shares_gradient = t.is_parallel && !t.drops;
  weights.pass(t.down_gradient, 0);
  weights.drop(t.activated + (shares_gradient ? 0 : t.hidden));
  weights.pass(t.up_gradient, 0);
  weights.drop(t.up + t.hidden);
}
void attention_weights(Alive& weights, const BlockTensors& t, int64_t projection_gradient,
                       int64_t projected) {
  weights.pass(t.output_gradient, 0);
  weights.drop(t.hidden + t.attended);
  weights.pass(projection_gradient, 0);
  weights.drop(projected + t.hidden);
}

// The MLP's first product again, of what a thinned call has kept.
int64_t complete_peak(const BlockTensors& t, const LayerCall& call) {
  Alive complete;
  complete.add(t.hidden);
  add_product(complete, call, t.tokens, t.h, t.up_cols);
  return complete.peak();
}

LayerMemory block_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  const BlockTensors t(model, call);
  const Alive forward = block_forward(t, call);
  Alive weights;
  mlp_weights(weights, t);
  attention_weights(weights, t, t.qkv_gradient, t.packed);

  const bool keeps_table = closes_stack(model, layer);
  // The decoder's embedded tokens and both tables flow past an encoder's block.
  const int64_t past = is_in_encoder(model, layer) ? t.hidden + 2 * t.table : 0;
  return {.output_bytes = t.hidden,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = t.hidden + past,
          .backward_peak_bytes = block_backward(t, call, keeps_table, false).peak(),
          .thinned_bytes = t.up,
          .complete_peak_bytes = complete_peak(t, call),
          .put_off_bytes = -weights.now(),
          .put_off_backward_peak_bytes = block_backward(t, call, keeps_table, true).peak(),
          .weight_peak_bytes = weights.peak()};
}

Alive cross_block_backward(const BlockTensors& t, const LayerCall& call, bool opens, bool closes,
                           bool put_off) {
  Alive alive;
  const Backward backward{alive, t, call, put_off};
  backward.mlp();
  if (opens) alive.add(t.hidden);  // the memory again
  backward.cross_attention(closes);
  if (opens) alive.drop(t.hidden);
  if (!put_off || t.drops) alive.drop(t.hidden);  // gradient of x2
  alive.drop(t.hidden + t.stats);                 // x1
  backward.attention(closes);
  return alive;
}

LayerMemory cross_block_memory(const ModelSpec& model, const LayerSpec& layer,
                               const LayerCall& call) {
  const BlockTensors t(model, call);
  const bool opens = opens_decoder(model, layer), closes = closes_stack(model, layer);
  Alive forward;
  if (opens) {
    forward.add(t.stats);
    forward.add(t.hidden);  // the memory
  }
  attention_forward(forward, t, call);
  forward.add(t.stats);
  forward.add(t.hidden);
  add_product(forward, call, t.tokens, t.h, t.attended_cols);
  forward.drop(t.hidden);
  add_product(forward, call, t.tokens, t.h, t.kv_cols);
  forward.add(t.attended);
  forward.add(t.log_sums);
  forward.pass(t.forward_scratch, 0);
  add_product(forward, call, t.tokens, t.attended_cols, t.h);  // x2
  mlp_forward(forward, t, call);
  if (opens && closes) forward.drop(t.hidden);

  Alive weights;
  mlp_weights(weights, t);
  attention_weights(weights, t, t.q_gradient, t.attended);
  attention_weights(weights, t, t.qkv_gradient, t.packed);
  return {.output_bytes = opens && !closes ? 2 * t.hidden : t.hidden,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = 2 * t.hidden + t.table,
          .backward_peak_bytes = cross_block_backward(t, call, opens, closes, false).peak(),
          .thinned_bytes = t.up,
          .complete_peak_bytes = complete_peak(t, call),
          .put_off_bytes = -weights.now(),
          .put_off_backward_peak_bytes = cross_block_backward(t, call, opens, closes, true).peak(),
          .weight_peak_bytes = weights.peak()};
}

LayerMemory head_memory(const ModelSpec& model, const LayerCall& call) {
  const int64_t wide = wide_bytes(call);
  const int64_t tokens = tokens_of(call);
  const int64_t h = model.hidden_size;
  const int64_t hidden = bytes_of(call.dtype) * tokens * h;
  const int64_t stats = wide * tokens * (model.norm == NormKind::kLayerNorm ? 2 : 1);
  const int64_t columns = part_size(model.vocab_size, call.tensor_degree, call.tensor_rank);
  const int64_t statistics = wide * 3 * tokens;  // maximum, sum and target's logit of each row
  // 16-bit logits are widened a few rows at a time, and keep their statistics.
  const int64_t rows = is_narrow(call) ? wide * std::min<int64_t>(tokens, 8) * columns : 0;

  Alive forward;
  forward.add(stats);
  forward.add(hidden);
  add_product(forward, call, tokens, h, columns);
  forward.drop(hidden);
  forward.add(statistics);
  forward.pass(rows, 0);
  if (!is_narrow(call)) forward.drop(statistics);
  forward.add(wide);  // the loss

  Alive backward;
  backward.pass(rows, 0);
  if (is_narrow(call)) backward.drop(statistics);
  add_product(backward, call, tokens, columns, h);  // gradient of x
  backward.add(hidden);                             // the norm's result again
  backward.pass(weight_gradient_bytes(call, columns, h), 0);

  return {.output_bytes = wide,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = hidden,
          .backward_peak_bytes = backward.peak(),
          .put_off_backward_peak_bytes = backward.peak()};
}

LayerMemory embedding_memory(const ModelSpec& model, const LayerSpec& layer,
                             const LayerCall& call) {
  const std::vector<TensorSpec> outputs = outputs_of(model, layer, call);
  const int64_t x = bytes_of(outputs);
  // A gradient of an output.
  const int64_t dropped = model.hidden_dropout > 0 ? outputs.front().bytes() : 0;
  return {.output_bytes = x,
          .saved_bytes = x,
          .forward_peak_bytes = x,
          .backward_peak_bytes = dropped,
          .put_off_backward_peak_bytes = dropped};
}

}  // namespace

LayerMemory memory_of(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  switch (layer.kind) {
    case LayerKind::kEmbedding: return embedding_memory(model, layer, call);
    case LayerKind::kGpt2Block:
    case LayerKind::kLlamaBlock:
    case LayerKind::kBlock: return block_memory(model, layer, call);
    case LayerKind::kCrossBlock: return cross_block_memory(model, layer, call);
    case LayerKind::kHead: return head_memory(model, call);
    case LayerKind::kOperators:
    case LayerKind::kLastOperators: return operator_memory(model, layer, call);
    case LayerKind::kMoeBlock:
    case LayerKind::kMtpBlock: break;
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

}  // namespace smp
