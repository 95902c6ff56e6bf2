#include <algorithm>

#include "model/block_memory.h"
#include "model/hidden_bytes.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/operators.h"

// Follows lib/runtime/src/layers allocation by allocation: each add() and drop() below is one
// tensor there, in the same order. tests/runtime/layers/layers_memory_test.cpp compares them to the
// byte.
namespace smp::model {
namespace {

LayerMemory head_memory(const ModelSpec& model, const LayerCall& call) {
  const HiddenBytes hidden(model, call);
  const int64_t wide = wide_bytes(call);
  const int64_t tokens = call.tokens();
  const int64_t h = model.hidden_size;
  const int64_t columns = call.part_of(model.vocab_size, call.kinds.embedding);
  const int64_t statistics = wide * 3 * tokens;  // maximum, sum and target's logit of each row
  // 16-bit logits are widened a few rows at a time, and keep their statistics.
  const int64_t rows = is_narrow(call) ? wide * std::min<int64_t>(tokens, 8) * columns : 0;

  Alive forward;
  forward.add(hidden.stats);
  forward.add(hidden.own);
  hidden.gather(forward);
  add_product(forward, call, tokens, h, columns);
  forward.drop(hidden.all);
  forward.add(statistics);
  forward.pass(rows, 0);
  if (!is_narrow(call)) forward.drop(statistics);
  forward.add(wide);  // the loss

  Alive backward;
  backward.pass(rows, 0);
  if (is_narrow(call)) backward.drop(statistics);
  add_product(backward, call, tokens, columns, h);  // gradient of x
  hidden.start_sum(backward);
  backward.add(hidden.own);  // the norm's result again
  hidden.gather(backward);
  backward.pass(weight_gradient_bytes(call, columns, h), 0);

  return {.output_bytes = wide,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .input_gradient_bytes = hidden.own,
          .backward_peak_bytes = backward.peak(),
          .deferred_backward_peak_bytes = backward.peak()};
}

LayerMemory embedding_memory(const ModelSpec& model, const LayerSpec& layer,
                             const LayerCall& call) {
  const HiddenBytes hidden(model, call);
  const int64_t outputs = bytes_of(outputs_of(model, layer, call));
  // Of an encoder_decoder both sequences, each with its table behind it.
  const int64_t sequences = model.stack == Stack::kEncoderDecoder ? 2 : 1;
  const int64_t table = (outputs - sequences * hidden.own) / sequences;
  Alive forward;
  for (int64_t i = 0; i < sequences; ++i) {
    if (call.vocabulary_degree() == 1) {  // each rank looks up its own tokens
      forward.add(hidden.own);
    } else {
      forward.add(hidden.all);
      hidden.start_sum(forward);
      hidden.finish_sum(forward);
    }
    forward.add(table);
  }
  // The output's gradient with its dropout, and of all tokens.
  Alive backward;
  backward.add(model.hidden_dropout > 0 ? hidden.own : 0);
  backward.add(hidden.gathered);
  return {.output_bytes = outputs,
          .saved_bytes = forward.now(),
          .forward_peak_bytes = forward.peak(),
          .backward_peak_bytes = backward.peak(),
          .deferred_backward_peak_bytes = backward.peak()};
}

}  // namespace

LayerMemory memory_of(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  switch (layer.kind) {
    case LayerKind::kEmbedding: return embedding_memory(model, layer, call);
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

}  // namespace smp::model
