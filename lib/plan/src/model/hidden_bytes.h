#pragma once

#include <cstdint>

#include "model/alive_bytes.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/layers.h"

// Counts the memory of blocks, head and embedding.
namespace smp::model {

inline bool is_narrow(const LayerCall& call) { return bytes_of(call.dtype) == 2; }
inline int64_t wide_bytes(const LayerCall& call) { return wide_bytes(call.dtype); }

inline void add_product(Alive& alive, const LayerCall& call, int64_t rows, int64_t depth,
                        int64_t cols) {
  add_product(alive, call.dtype, rows, depth, cols);
}

inline int64_t weight_gradient_bytes(const LayerCall& call, int64_t rows, int64_t cols) {
  return weight_gradient_bytes(call.dtype, call.tokens(), rows, cols);
}

// Bytes of the rank's own [tokens, hidden] outside the layers' matrices. If sequences are split,
// all tokens are gathered before a matrix and scattered after one.
struct HiddenBytes {
  HiddenBytes(const ModelSpec& model, const LayerCall& call)
      : all(bytes_of(call.dtype) * call.tokens() * model.hidden_size),
        own(bytes_of(call.dtype) * call.own_tokens() * model.hidden_size),
        gathered(call.sequence_parallel ? all : 0) {
    const int64_t vectors = model.norm == NormKind::kLayerNorm ? 2 : 1;
    stats = wide_bytes(call) * call.own_tokens() * vectors;
    norm_sums = call.sequence_parallel ? wide_bytes(call) * vectors * model.hidden_size : 0;
  }

  // Gathers: the rank's own tokens, which are released, become all.
  void gather(Alive& alive) const {
    alive.add(gathered);
    if (gathered > 0) alive.drop(own);
  }
  // Scatters: all tokens become the rank's own; both live until the sum is done.
  void start_sum(Alive& alive) const {
    if (gathered > 0) alive.add(own);
  }
  void finish_sum(Alive& alive) const { alive.drop(gathered); }

  int64_t all, own;
  int64_t gathered;   // all, where it is not what the rank has anyway
  int64_t stats;      // mean and 1/deviation; RMSNorm: 1/rms
  int64_t norm_sums;  // gradients of a norm from the rank's own tokens
};

}  // namespace smp::model
