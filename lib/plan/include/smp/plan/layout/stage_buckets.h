#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/mesh/mesh.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// A contiguous range of the flat buffers whose gradients are reduced together. It holds whole
// layers of one chunk, without the tensors that persist, and is padded at its end to a multiple of
// the shard degree.
struct Bucket {
  int64_t begin = 0;        // elements
  int64_t end = 0;          // elements, with padding
  int64_t first_layer = 0;  // model indices; backward completes the bucket at first_layer
  int64_t last_layer = 0;
  // Where what is sharded lies while it is whole: indices into StageBuckets' lists; -1 = it always
  // is, in the flat buffer.
  int32_t gradient_buffer = -1;
  int32_t weight_buffer = -1;
  int64_t part_begin = 0;  // of each rank's part where the flat buffer holds parts alone; elements
  // The experts of its layers, where ranks share them (expert parallelism): a bucket of their own
  // that is reduced, gathered and updated with this one, over other ranks; -1 = none.
  int32_t experts = -1;
  bool is_of_experts = false;

  int64_t size() const { return end - begin; }
};

// How the flat buffers of a rank are cut in buckets.
struct StageBuckets : StageLayers {
  // In the order of reduction: last layers first. Behind `scheduled` of them those of experts,
  // which other buckets name.
  std::vector<Bucket> buckets;
  size_t scheduled = 0;
  // The last scheduled bucket where small tensors persist (param_persistence_threshold): those of
  // all layers, in front of the flat buffers. It is gathered once a step and reduced once, after
  // all layers' backward; its buffers are its own. -1 = none.
  int32_t persistent_bucket = -1;
  bool opens_with_persistent = false;  // the first tensor of the first layer is among them
  int64_t elements = 0;                // of the flat buffers, padding included
  int64_t part_elements = 0;           // of a rank's parts of all buckets

  // Elements of the buffers that buckets share while they are whole. Neighbouring buckets use
  // different buffers. Gradients are whole from a microbatch's first product to the end of their
  // reduction (sharding: gradients and parameters). Weights are whole from their gathering to their
  // last use (parameters): at most max_live_parameters of them, or a block and the ends of the
  // model. The flat buffers of sharded weights or gradients hold a share of `elements`.
  std::vector<int64_t> gradient_buffers;
  std::vector<int64_t> weight_buffers;
  bool shards_gradients() const { return !gradient_buffers.empty(); }
  bool shards_weights() const { return !weight_buffers.empty(); }
};

// Tensor ranks that hold the same KV head (layers.h) where they share attention; else 1: all hold
// all heads, and their gradients come out equal.
int64_t kv_copies(const Plan& plan);

// How the ranks of a stage that hold the same parts of its matrices share weights, gradients and
// optimizer state: `shards` parts, each on `replicas` ranks. Context-parallel ranks are among them:
// their gradients are sums over parts of the batch, as those of data-parallel ranks.
struct StateShare {
  int64_t shards = 1, replicas = 1;
  int64_t shard = 0, replica = 0;  // a rank's place

  int64_t ranks() const { return shards * replicas; }
};
StateShare state_share(const Plan& plan, const mesh::Coord& coord = {});
// Whether ranks share the experts of a layer, and exchange rows (exchanges_rows()).
bool shares_experts(const Plan& plan);
// The same for experts, of those ranks that hold the same part of the experts.
StateShare expert_share(const Plan& plan, const mesh::Coord& coord = {});

// Whether the plan cuts this over its shard ranks.
bool shards_gradients(const Plan& plan);
bool shards_weights(const Plan& plan);

// Whether the first and the last stage share the token embedding (zb_v has both ends of the model
// on one stage).
bool tied_across_stages(const Plan& plan);

}  // namespace smp::layout
