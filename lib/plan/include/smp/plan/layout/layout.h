#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "smp/plan/layout/stage_buckets.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/model/layers.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// A RankLayout says what one rank holds: its layers, its part of each parameter, where it lies in
// the rank's flat weight and gradient buffers, and how those are cut in buckets. The planner counts
// bytes with it, the runtime allocates by it, the checkpoint writer names tensors by it.
struct PlacedParameter {
  model::ParameterSpec spec;
  model::Box box;      // this rank's part
  int64_t layer = 0;   // model index of its layer
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t copies = 1;  // tensor ranks that hold this very box
  bool counts = true;  // this rank's copy is the one that enters norms and checkpoints
};

struct RankLayout : StageBuckets {
  int64_t rank = 0;
  mesh::Coord coord;
  StateShare state, expert_state;
  std::vector<PlacedParameter> parameters;  // in forward order

  const StateShare& share_of(const Bucket& bucket) const {
    return bucket.is_of_experts ? expert_state : state;
  }

  // Last stage of a model tied across stages: its copy of the token embedding, in buffers of its
  // own. The first stage owns the weight: it has the optimizer state, counts it, and sends it back.
  std::optional<PlacedParameter> tied_copy;
  // Both uses of a tied embedding are here, and the head's part of its gradient is summed apart, as
  // where they are on two stages (training.deterministic).
  bool tied_gradient_apart = false;

  // Elements of optimizer state: those this rank updates.
  int64_t optimizer_elements = 0;
};

// Elements that the update of optimizer state in host memory moves at once: 1 MiB of gradients, so
// that they are still in the cache when they are used.
inline constexpr int64_t kHostUpdateElements = 256 << 10;
int64_t host_update_elements(const RankLayout& layout);

RankLayout rank_layout(const Plan& plan, int64_t rank);

}  // namespace smp::layout
