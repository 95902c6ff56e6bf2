#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/layers.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

struct RankLayout;

// One call of any layer of a plan on these ranks of the two axes.
model::LayerCall layer_call(const Plan& plan, int64_t tensor_rank, int64_t context_rank = 0);

// What passes the ends of a chunk: what its first layer takes from the layer before it, and what
// its last one hands on; nothing at the ends of the model.
struct ChunkEnds {
  std::vector<model::TensorSpec> takes;
  std::vector<model::TensorSpec> hands;
};
std::vector<ChunkEnds> chunk_ends(const Plan& plan, const RankLayout& layout);  // by chunk

}  // namespace smp::layout
