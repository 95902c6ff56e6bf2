#include "accelerator_layers.h"

#include <algorithm>

#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

constexpr int64_t kFp32Bytes = 4;

LayerMemory embedding_memory(int64_t wide_bytes) {
  LayerMemory memory;
  memory.output_bytes = wide_bytes;
  memory.saved_bytes = wide_bytes;
  memory.forward_peak_bytes = wide_bytes;
  return memory;
}

LayerMemory head_memory(int64_t wide_bytes, int64_t tokens, int64_t vocabulary, int64_t element) {
  LayerMemory memory;
  // Normed input, logits, and the logits in fp32 for the softmax: s b V / t x (2 + 4). The gradient
  // of the logits takes their place.
  memory.saved_bytes = wide_bytes + tokens * vocabulary * (element + kFp32Bytes);
  memory.forward_peak_bytes = memory.saved_bytes;
  memory.input_gradient_bytes = wide_bytes;
  memory.backward_peak_bytes = 2 * wide_bytes;  // gradients of the normed and of the plain input
  return memory;
}

LayerMemory block_memory(const ModelSpec& model, const LayerCall& call, int64_t wide_bytes,
                         int64_t tokens, int64_t element, bool gated, bool checkpointed) {
  const int64_t t = call.tensor_degree;
  const int64_t heads = part_size(model.num_heads, t, 0);
  const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / t);
  const int64_t ffn = part_size(model.ffn_hidden_size, t, 0);
  const int64_t attention =
      tokens * model.head_dim * (2 * heads + 2 * kv_heads) * element  // Q, core out; K, V
      + tokens * heads * kFp32Bytes;                                  // log-sum-exp
  const int64_t mlp = tokens * ffn * (gated ? 3 : 2) * element;  // gate, up, product; fc1, GELU
  // Not cut by tensor parallelism: QKV input, second norm's input, MLP input, output. The first
  // norm's input is the layer's own.
  const int64_t kept = 4 * wide_bytes + attention + mlp;
  const int64_t gradients = 2 * wide_bytes + mlp;  // of the MLP's insides, of a norm, of the input

  LayerMemory memory;
  memory.output_bytes = wide_bytes;
  memory.input_gradient_bytes = wide_bytes;
  memory.forward_peak_bytes = kept;
  if (checkpointed) {
    memory.saved_bytes = wide_bytes;
    memory.backward_peak_bytes = kept - wide_bytes + gradients;
  } else {
    memory.saved_bytes = kept;
    memory.backward_peak_bytes = gradients;
  }
  return memory;
}

}  // namespace

LayerMemory accelerator_memory_of(const ModelSpec& model, const LayerSpec& layer,
                                  const LayerCall& call, bool checkpointed) {
  const int64_t element = bytes_of(call.dtype);
  const int64_t tokens = call.micro_batch * call.sequence_length;
  const int64_t wide_bytes = tokens * model.hidden_size * element;  // [batch, seq, hidden]
  switch (layer.kind) {
    case LayerKind::kEmbedding: return embedding_memory(wide_bytes);
    case LayerKind::kHead:
      return head_memory(wide_bytes, tokens, part_size(model.vocab_size, call.tensor_degree, 0),
                         element);
    case LayerKind::kGpt2Block:
    case LayerKind::kLlamaBlock:
    case LayerKind::kBlock:
    case LayerKind::kMoeBlock:
    case LayerKind::kCrossBlock:
    case LayerKind::kMtpBlock:
      return block_memory(model, call, wide_bytes, tokens, element, is_gated(model.mlp),
                          checkpointed);
  }
  check_failed(__FILE__, __LINE__, "unknown layer kind");
}

}  // namespace smp
