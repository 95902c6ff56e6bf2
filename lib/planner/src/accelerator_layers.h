#pragma once

#include "smp/plan/layers.h"

namespace smp {

// A transformer layer: neither the embedding nor the head.
inline bool is_block(const LayerSpec& layer) {
  return is_transformer_block(layer.kind);
}

// Bytes of one layer call on an accelerator, by the published formulas (Korthikanti et al. 2022,
// arXiv 2205.05198, for a block whose attention keeps its statistics only, as flash attention does;
// no dropout, no sequence parallelism). A checkpointed block keeps its output alone and makes the
// rest again in its backward. Same meaning of the fields as memory_of(). Pure.
LayerMemory accelerator_memory_of(const ModelSpec& model, const LayerSpec& layer,
                                  const LayerCall& call, bool checkpointed);

}  // namespace smp
