#include <algorithm>

#include "smp/plan/check.h"
#include "smp/plan/collective.h"
#include "smp/plan/layers.h"

// Follows lib/runtime/src/layers allocation by allocation: each add() and drop() below is one
// tensor there, in the same order. tests/runtime/layers_memory_test.cpp compares them to the byte.
namespace smp {
namespace {

// Bytes alive above those at the start, and the most there ever were.
class Alive {
 public:
  void add(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void drop(int64_t bytes) { now_ -= bytes; }
  // A tensor that lives only while `during` more bytes are added.
  void pass(int64_t bytes, int64_t during) {
    add(bytes);
    add(during);
    drop(bytes);
  }

  int64_t now() const { return now_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

// What lives while the gradient of a matrix [rows, cols] is made. In fp32: the product, before it
// is added to the flat buffer, and a transposed copy of the narrower factor, which has a row per
// token. In fp64 the product adds to the buffer itself.
int64_t weight_gradient_bytes(const LayerCall& call, int64_t rows, int64_t cols) {
  if (call.dtype == DType::kF64) return 0;
  const int64_t tokens = call.micro_batch * call.sequence_length;
  return bytes_of(call.dtype) * (rows * cols + tokens * std::min(rows, cols));
}

// Bytes of the tensors of one block's call.
struct BlockTensors {
  BlockTensors(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
    const bool gpt2 = layer.kind == LayerKind::kGpt2Block;
    const int64_t element = bytes_of(call.dtype);
    const int64_t s = call.sequence_length;
    const int64_t tokens = call.micro_batch * s;
    const int64_t heads = model.num_heads / call.tensor_degree;
    const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / call.tensor_degree);
    const int64_t width = part_size(model.ffn_hidden_size, call.tensor_degree, call.tensor_rank);

    const int64_t h = model.hidden_size;
    const int64_t packed_rows = (heads + 2 * kv_heads) * model.head_dim;

    hidden = element * tokens * h;
    stats = element * tokens * (gpt2 ? 2 : 1);  // LayerNorm: mean and 1/deviation; RMSNorm: 1/rms
    packed = element * tokens * packed_rows;    // q, k and v
    attended = element * tokens * heads * model.head_dim;
    log_sums = element * tokens * heads;
    activated = element * tokens * width;
    up = (gpt2 ? 1 : 2) * activated;  // SwiGLU: gate and up

    qkv_gradient = weight_gradient_bytes(call, packed_rows, h);
    output_gradient = weight_gradient_bytes(call, h, heads * model.head_dim);
    up_gradient = weight_gradient_bytes(call, (gpt2 ? 1 : 2) * width, h);
    down_gradient = weight_gradient_bytes(call, h, width);

    // Attention, a head at a time: q, k, v and (backward) the output's gradient, [s, head_dim] or
    // transposed with rows of a multiple of 32; the rotary table; scores of 8 queries forward, of a
    // block and their gradients backward; 16 elements that are read and ignored.
    const int64_t row = (s + 31) / 32 * 32;
    const int64_t head = s * model.head_dim;
    const int64_t turned = model.head_dim * row;
    const int64_t table = gpt2 ? 0 : head;
    forward_scratch = element * (2 * head + turned + 8 * row + table + 16);
    backward_scratch =
        element * (3 * head + 2 * turned + 2 * kAttentionQueryBlock * row + table + 16);
  }

  int64_t hidden, stats, packed, attended, log_sums, activated, up;
  int64_t qkv_gradient, output_gradient, up_gradient, down_gradient;
  int64_t forward_scratch, backward_scratch;
};

// With `put_off` the factors of the weights' gradients stay, and their products are not made.
Alive block_backward(const BlockTensors& t, bool put_off) {
  Alive backward;
  const auto product = [&](int64_t gradient, int64_t factors) {
    if (put_off) return;
    backward.pass(gradient, 0);
    backward.drop(factors);
  };
  backward.add(t.activated);  // gradient of the activation, exchanged with what was saved as `up`
  product(t.down_gradient, t.activated);  // the activation, recomputed into one of the two
  backward.add(t.hidden);                 // gradient of x1
  backward.add(t.hidden);                 // the norm's result again
  product(t.up_gradient, t.hidden + t.up);
  backward.drop(t.hidden);  // x1
  backward.drop(t.stats);
  product(t.output_gradient, 0);
  backward.pass(t.attended, t.backward_scratch);  // gradient of the attention's output
  backward.drop(t.backward_scratch);
  if (!put_off) backward.drop(t.attended);
  backward.drop(t.log_sums);
  backward.add(t.hidden);  // gradient of x
  backward.add(t.hidden);
  product(t.qkv_gradient, t.hidden + t.packed);
  return backward;
}

LayerMemory block_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  const BlockTensors t(model, layer, call);
  Alive forward;
  forward.add(t.stats);
  forward.pass(t.hidden, t.packed);  // the norm's result, while it is projected
  forward.add(t.attended);
  forward.add(t.log_sums);
  forward.pass(t.forward_scratch, 0);
  forward.add(t.hidden);  // x1
  forward.add(t.stats);
  forward.pass(t.hidden, t.up);
  forward.pass(t.activated, t.hidden);  // y

  // Of the factors of the weights' gradients each lives until its product; the output's gradient
  // is one, and the caller's until then.
  const Alive at_once = block_backward(t, false), put_off = block_backward(t, true);
  Alive weights;
  weights.pass(t.down_gradient, 0);
  weights.drop(t.hidden + t.activated);
  weights.pass(t.up_gradient, 0);
  weights.drop(t.up + t.hidden);
  weights.pass(t.output_gradient, 0);
  weights.drop(t.hidden + t.attended);
  weights.pass(t.qkv_gradient, 0);
  weights.drop(t.packed + t.hidden);

  return {.output_bytes = t.hidden,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = t.hidden,
          .backward_peak_bytes = at_once.peak(),
          .put_off_bytes = -weights.now(),
          .put_off_backward_peak_bytes = put_off.peak(),
          .weight_peak_bytes = weights.peak()};
}

LayerMemory head_memory(const ModelSpec& model, const LayerCall& call) {
  const int64_t element = bytes_of(call.dtype);
  const int64_t tokens = call.micro_batch * call.sequence_length;
  const int64_t hidden = element * tokens * model.hidden_size;
  const int64_t stats = element * tokens * (model.norm == NormKind::kLayerNorm ? 2 : 1);
  const int64_t columns = part_size(model.vocab_size, call.tensor_degree, call.tensor_rank);
  const int64_t logits = element * tokens * columns;
  const int64_t statistics = element * 3 * tokens;  // maximum, sum and target's logit of each row

  Alive forward;
  forward.add(stats);
  forward.pass(hidden, logits);
  forward.pass(statistics, 0);
  forward.add(element);  // the loss

  Alive backward;
  backward.add(hidden);  // gradient of x
  backward.add(hidden);  // the norm's result again
  backward.pass(weight_gradient_bytes(call, columns, model.hidden_size), 0);

  return {.output_bytes = element,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = hidden,
          .backward_peak_bytes = backward.peak(),
          .put_off_backward_peak_bytes = backward.peak()};
}

LayerMemory embedding_memory(const ModelSpec& model, const LayerCall& call) {
  const int64_t x =
      bytes_of(call.dtype) * call.micro_batch * call.sequence_length * model.hidden_size;
  return {.output_bytes = x, .saved_bytes = x, .forward_peak_bytes = x};
}

}  // namespace

LayerMemory memory_of(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  switch (layer.kind) {
    case LayerKind::kEmbedding: return embedding_memory(model, call);
    case LayerKind::kGpt2Block:
    case LayerKind::kLlamaBlock: return block_memory(model, layer, call);
    case LayerKind::kHead: return head_memory(model, call);
    case LayerKind::kBlock:
    case LayerKind::kMoeBlock:
    case LayerKind::kCrossBlock:
    case LayerKind::kMtpBlock: break;
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

}  // namespace smp
