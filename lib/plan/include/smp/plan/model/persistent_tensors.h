#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/model/layers.h"

namespace smp::model {

// Which of a layer's tensors persist: those with fewer elements than param_persistence_threshold,
// counted before tensor parallelism cuts them. A persistent tensor is gathered once a step, at its
// first use, and stays gathered until the update. Queries, keys and values are one matrix to the
// layer, so they persist together or not at all. With `kv_copied`, where tensor ranks hold copies
// of a KV head, they never persist: their gradients are summed by microbatch, before those of other
// ranks. Nor do tensors of experts with `shares_experts`, where ranks have different ones.
std::vector<bool> persistent_tensors(const std::vector<ParameterSpec>& tensors, int64_t threshold,
                                     bool kv_copied, bool shares_experts);

}  // namespace smp::model
