#pragma once

#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/layers.h"

namespace smp::model {

// Memory of a transformer block; and of a decoder's block that reads the encoder's output.
LayerMemory block_memory(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call);
LayerMemory cross_block_memory(const ModelSpec& model, const LayerSpec& layer,
                               const LayerCall& call);

}  // namespace smp::model
