#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/model/layers.h"

namespace smp::model {

// Which of a layer's tensors have fewer elements than param_persistence_threshold, before tensor
// parallelism cuts them, and so stay gathered from step to step. Queries, keys and values are one
// matrix to the layer and go together. With `kv_copied`, where tensor ranks hold copies of a KV
// head, they never do: their gradients are summed by microbatch, before those of other ranks.
std::vector<bool> persistent_tensors(const std::vector<ParameterSpec>& tensors, int64_t threshold,
                                     bool kv_copied);

}  // namespace smp::model
