#include "model/block_memory.h"

#include <algorithm>

#include "model/hidden_bytes.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/parameter_counts.h"

// Follows lib/runtime/src/layers allocation by allocation: each add() and drop() below is one
// tensor there, in the same order. tests/runtime/layers/layers_memory_test.cpp compares them to the
// byte.
namespace smp::model {
namespace {

// Columns of one block's tensors, and the bytes of those.
struct BlockTensors {
  BlockTensors(const ModelSpec& model, const LayerCall& call)
      : hidden(model, call),
        is_parallel(model.parallel_residual),
        shares_norm(model.shared_norm),
        drops(model.hidden_dropout > 0) {
    const int64_t element = bytes_of(call.dtype), wide = wide_bytes(call);
    const int64_t s = call.sequence_length;
    const int64_t heads = model.num_heads / call.attention_degree();
    const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / call.attention_degree());
    const bool centered = model.norm == NormKind::kLayerNorm;

    tokens = call.tokens();
    h = model.hidden_size;
    packed_cols = (heads + 2 * kv_heads) * model.head_dim;
    attended_cols = heads * model.head_dim;
    width = call.part_of(model.ffn_hidden_size, call.kinds.mlp);
    up_cols = (is_gated(model.mlp) ? 2 : 1) * width;

    packed = element * tokens * packed_cols;  // q, k and v
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

  HiddenBytes hidden;
  bool is_parallel, shares_norm, drops;
  int64_t tokens, h, packed_cols, attended_cols, kv_cols, width, up_cols;
  int64_t packed, attended, kv, log_sums, activated, up;
  int64_t qkv_gradient, q_gradient, kv_gradient, output_gradient, up_gradient, down_gradient;
  int64_t table = 0, table_gradient = 0, diagonals = 0;
  int64_t forward_scratch, backward_scratch, head_norms;
};

// A norm's result, gathered and multiplied.
void add_column_parallel(Alive& alive, const BlockTensors& t, const LayerCall& call, int64_t cols) {
  alive.add(t.hidden.own);
  t.hidden.gather(alive);
  add_product(alive, call, t.tokens, t.h, cols);
  alive.drop(t.hidden.all);
}

// The output that a branch adds to the residual stream.
void add_row_parallel(Alive& alive, const BlockTensors& t, const LayerCall& call, int64_t width) {
  add_product(alive, call, t.tokens, width, t.h);
  t.hidden.start_sum(alive);
  t.hidden.finish_sum(alive);
}

void attention_forward(Alive& forward, const BlockTensors& t, const LayerCall& call) {
  forward.add(t.hidden.stats);
  add_column_parallel(forward, t, call, t.packed_cols);
  forward.add(t.attended);
  forward.add(t.log_sums);
  forward.pass(t.forward_scratch + t.diagonals, 0);
  add_row_parallel(forward, t, call, t.attended_cols);  // x1
}

void mlp_forward(Alive& forward, const BlockTensors& t, const LayerCall& call) {
  if (!t.shares_norm) forward.add(t.hidden.stats);
  add_column_parallel(forward, t, call, t.up_cols);
  forward.add(t.activated);
  add_row_parallel(forward, t, call, t.width);  // y
  forward.drop(t.activated);
}

Alive block_forward(const BlockTensors& t, const LayerCall& call) {
  Alive forward;
  attention_forward(forward, t, call);
  mlp_forward(forward, t, call);
  if (t.is_parallel) forward.drop(t.hidden.own);  // x1
  return forward;
}

// A backward under way. With `defers` the factors of the weight gradients stay, and their products
// are not computed.
struct Backward {
  Alive& alive;
  const BlockTensors& t;
  const LayerCall& call;
  bool defers;

  void weight_gradient(int64_t bytes, int64_t factors) const {
    if (defers) return;
    alive.pass(bytes, 0);
    alive.drop(factors);
  }

  // The gradient of a branch's result with its dropout, of the rank's own tokens.
  int64_t dropped() const { return t.drops ? t.hidden.own : 0; }

  // The gradient of a norm's result from `gradient`, and with it that of the matrix, whose factors
  // are both.
  void column_parallel(int64_t cols, int64_t gradient, int64_t bytes) const {
    start_column_parallel(cols, gradient, bytes);
    t.hidden.finish_sum(alive);
  }
  void start_column_parallel(int64_t cols, int64_t gradient, int64_t bytes) const {
    add_product(alive, call, t.tokens, cols, t.h);
    t.hidden.start_sum(alive);
    alive.add(t.hidden.own);  // the norm's result again
    if (!defers) t.hidden.gather(alive);
    weight_gradient(bytes, t.hidden.all + gradient);
  }

  // Up to the gradient of the norm's result.
  void mlp() const {
    alive.add(dropped());
    alive.add(t.hidden.gathered);
    // Gradient of the activation, exchanged with what was saved as `up`; the activation is made
    // again in one of the two.
    add_product(alive, call, t.tokens, t.h, t.width);
    weight_gradient(t.down_gradient, t.activated + dropped());
    alive.drop(t.hidden.gathered);
    column_parallel(t.up_cols, t.up, t.up_gradient);
    if (!t.shares_norm) alive.pass(t.hidden.norm_sums, 0);
    if (!t.is_parallel) alive.drop(t.hidden.own);  // the branch's input
    if (!t.shares_norm) alive.drop(t.hidden.stats);
  }

  // What was kept of queries, keys and values becomes their gradients. `diagonals` of relative
  // positions, whose table's gradient is new with `makes_table`.
  void heads(int64_t diagonals, bool makes_table) const {
    alive.add(dropped());
    alive.add(t.hidden.gathered);
    // Where nothing is gathered, the dropped gradient is at hand for the output's gradient too.
    weight_gradient(t.output_gradient, t.hidden.gathered > 0 ? dropped() : 0);
    add_product(alive, call, t.tokens, t.h, t.attended_cols);  // of the attention's output
    if (!defers && t.hidden.gathered == 0) alive.drop(dropped());
    alive.drop(t.hidden.gathered);
    const int64_t table_gradient = diagonals > 0 ? t.table_gradient : 0;
    alive.add(table_gradient);
    alive.pass(t.backward_scratch + 2 * diagonals + t.head_norms, 0);
    if (table_gradient > 0 && is_narrow(call)) alive.pass(t.table, 0);
    alive.drop(table_gradient);
    if (makes_table) alive.add(t.table);
    alive.drop(t.attended);
    if (!defers) alive.drop(t.attended);
    alive.drop(t.log_sums);
  }

  void attention(bool makes_table) const {
    heads(t.diagonals, makes_table);
    column_parallel(t.packed_cols, t.packed, t.qkv_gradient);  // gradient of x
    alive.pass(t.hidden.norm_sums, 0);
  }

  // The gradient of keys' and values' weights is never deferred: its factor, the encoder output,
  // belongs to other blocks as well.
  void cross_attention(bool makes_encoder_output_gradient) const {
    heads(0, false);
    start_column_parallel(t.attended_cols, t.attended, t.q_gradient);
    add_product(alive, call, t.tokens, t.kv_cols, t.h);  // gradient of the encoder output
    t.hidden.start_sum(alive);
    t.hidden.finish_sum(alive);
    if (!makes_encoder_output_gradient) alive.drop(t.hidden.own);
    alive.pass(t.hidden.gathered + t.kv_gradient, 0);
    alive.drop(t.kv);
    t.hidden.finish_sum(alive);
  }
};

Alive block_backward(const BlockTensors& t, const LayerCall& call, bool makes_table, bool defers) {
  Alive alive;
  const Backward backward{alive, t, call, defers};
  backward.mlp();
  backward.attention(makes_table);
  return alive;
}

// Each factor of the weights' gradients lives until its last product. The output's gradient is one
// of them, and belongs to the caller until then. With dropout each branch has its own. One factor
// of each product is gathered.
void deferred_product(Alive& weights, const BlockTensors& t, int64_t bytes, int64_t factors) {
  weights.pass(t.hidden.gathered + bytes, 0);
  weights.drop(factors);
}
void mlp_weights(Alive& weights, const BlockTensors& t) {
  const bool shares_gradient = t.is_parallel && !t.drops;
  deferred_product(weights, t, t.down_gradient, t.activated + (shares_gradient ? 0 : t.hidden.own));
  deferred_product(weights, t, t.up_gradient, t.up + t.hidden.own);
}
void attention_weights(Alive& weights, const BlockTensors& t, int64_t projection_gradient,
                       int64_t projected) {
  deferred_product(weights, t, t.output_gradient, t.hidden.own + t.attended);
  deferred_product(weights, t, projection_gradient, projected + t.hidden.own);
}

// Selective recomputation: the MLP's first product again, from the tensors that are still saved.
int64_t complete_peak(const BlockTensors& t, const LayerCall& call) {
  Alive complete;
  add_column_parallel(complete, t, call, t.up_cols);
  return complete.peak();
}

Alive cross_block_backward(const BlockTensors& t, const LayerCall& call, bool opens, bool closes,
                           bool defers) {
  const int64_t hidden = t.hidden.own;
  Alive alive;
  const Backward backward{alive, t, call, defers};
  backward.mlp();
  if (opens) alive.add(hidden);  // the encoder output, recomputed
  backward.cross_attention(closes);
  if (opens) alive.drop(hidden);
  alive.pass(t.hidden.norm_sums, 0);
  if (!defers || t.drops) alive.drop(hidden);  // gradient of x2
  alive.drop(hidden + t.hidden.stats);         // x1
  backward.attention(closes);
  if (opens) alive.pass(t.hidden.norm_sums, 0);
  return alive;
}

}  // namespace

LayerMemory block_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  const BlockTensors t(model, call);
  const Alive forward = block_forward(t, call);
  Alive weights;
  mlp_weights(weights, t);
  attention_weights(weights, t, t.qkv_gradient, t.packed);

  const bool keeps_table = closes_stack(model, layer);
  // The decoder's embedded tokens and both tables flow past an encoder's block.
  const int64_t past = is_in_encoder(model, layer) ? t.hidden.own + 2 * t.table : 0;
  return {.output_bytes = t.hidden.own,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = t.hidden.own + past,
          .backward_peak_bytes = block_backward(t, call, keeps_table, false).peak(),
          .recomputable_bytes = t.up,
          .complete_peak_bytes = complete_peak(t, call),
          .deferred_bytes = -weights.now(),
          .deferred_saved_bytes = t.up + t.attended + t.packed,
          .deferred_backward_peak_bytes = block_backward(t, call, keeps_table, true).peak(),
          .weight_peak_bytes = weights.peak()};
}

LayerMemory cross_block_memory(const ModelSpec& model, const LayerSpec& layer,
                               const LayerCall& call) {
  const BlockTensors t(model, call);
  const int64_t hidden = t.hidden.own;
  const bool opens = opens_decoder(model, layer), closes = closes_stack(model, layer);
  Alive forward;
  if (opens) {
    forward.add(t.hidden.stats);
    forward.add(hidden);  // the encoder output
  }
  attention_forward(forward, t, call);
  forward.add(t.hidden.stats);
  add_column_parallel(forward, t, call, t.attended_cols);
  forward.add(t.hidden.gathered);  // the encoder output of all tokens
  add_product(forward, call, t.tokens, t.h, t.kv_cols);
  forward.drop(t.hidden.gathered);
  forward.add(t.attended);
  forward.add(t.log_sums);
  forward.pass(t.forward_scratch, 0);
  add_row_parallel(forward, t, call, t.attended_cols);  // x2
  mlp_forward(forward, t, call);
  if (opens && closes) forward.drop(hidden);

  Alive weights;
  mlp_weights(weights, t);
  attention_weights(weights, t, t.q_gradient, t.attended);
  attention_weights(weights, t, t.qkv_gradient, t.packed);
  return {.output_bytes = opens && !closes ? 2 * hidden : hidden,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = 2 * hidden + t.table,
          .backward_peak_bytes = cross_block_backward(t, call, opens, closes, false).peak(),
          .recomputable_bytes = t.up,
          .complete_peak_bytes = complete_peak(t, call),
          .deferred_bytes = -weights.now(),
          .deferred_saved_bytes = t.up + 3 * t.attended + t.packed,
          .deferred_backward_peak_bytes = cross_block_backward(t, call, opens, closes, true).peak(),
          .weight_peak_bytes = weights.peak()};
}

}  // namespace smp::model
