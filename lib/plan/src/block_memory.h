#pragma once

#include "smp/plan/layer_tensors.h"
#include "smp/plan/layers.h"

namespace smp {

// Of a transformer block; of a decoder's block that reads the encoder's output.
LayerMemory block_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call);
LayerMemory cross_block_memory(const ModelSpec& model, const LayerSpec& layer,
                               const LayerCall& call);

}  // namespace smp
