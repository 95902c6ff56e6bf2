#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/layer_tensors.h"
#include "smp/plan/layers.h"

namespace smp {

struct Plan;
struct RankLayout;

// One call of any layer of a plan on tensor rank `tensor_rank`.
LayerCall layer_call(const Plan& plan, int64_t tensor_rank);

// What passes the ends of a chunk: what its first layer takes from the layer before it, and what
// its last one hands on; nothing at the ends of the model.
struct ChunkEnds {
  std::vector<TensorSpec> takes;
  std::vector<TensorSpec> hands;
};
std::vector<ChunkEnds> chunk_ends(const Plan& plan, const RankLayout& layout);  // by chunk

}  // namespace smp
