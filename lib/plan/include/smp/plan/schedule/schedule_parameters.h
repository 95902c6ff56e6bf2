#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/schedule_shape.h"

namespace smp::schedule {

// Everything a schedule depends on. Layers are model indices.
struct ScheduleParameters {
  ScheduleShape shape;
  std::vector<std::vector<std::vector<int64_t>>> layers;  // per stage and chunk, forward order
  // Of each gradient bucket, the last layers' first; layers may lie between two. Per stage; empty =
  // none.
  std::vector<std::vector<int64_t>> bucket_first_layers, bucket_last_layers;
  std::vector<std::vector<int64_t>> bucket_elements;  // of the same buckets
  // Buckets whose reduction is in flight at once; 0 = any number.
  int64_t most_reductions = 0;
  // The shards have replicas: the sums of a shard group are summed over the replicas, once a step.
  bool has_replicas = false;
  // Elements that a shard group is expected to reduce while the backward makes one: second halves
  // start when the first ones are expected to be done; 0 = after the last backward.
  int64_t reduced_per_computed = 1;
  // Its weight gradient is never deferred, because it needs the logits' gradient; -1 = none.
  int64_t head_layer = -1;
  // By model index; empty = none. Of layers that are computed again before their backward: the
  // layer whose input is kept, the first of the run that shares it; -1 = kept whole.
  std::vector<int64_t> checkpoints;
  // Selective recomputation: those layers release LayerMemory::recomputable_bytes alone.
  bool selective = false;
  std::vector<bool> offloaded;  // by model index: what its calls keep lies on the host meanwhile
  int64_t loading_horizon = 0;  // how many calls ahead of its backward it is fetched
  // A bucket is updated as soon as it is reduced: nothing has to be known of the others before.
  bool early_updates = false;
  // Each bucket's updated weights are gathered while the others are updated, and waited for where
  // the next step uses them first: a list begins with the gathers that the step before has left.
  bool sharded = false;
  int64_t most_gathers = 0;  // of these in flight at once; 0 = any number
  // Sharded gradients: each microbatch's are reduced, and the buffer of each bucket (of one layer)
  // while they are whole. Sharded weights: gathered before each use, `prefetch_layers` ahead, in
  // their buffers. Per stage; empty = whole. (RankLayout has the sizes.)
  std::vector<std::vector<int32_t>> gradient_buffers;
  std::vector<std::vector<int32_t>> weight_buffers;
  int64_t prefetch_layers = 1;
  // Per stage, the last bucket, whose tensors all layers have and which stays gathered to the end
  // of the step; -1 = none. `table_persists`: the token embedding is among them.
  std::vector<int32_t> persistent_buckets;
  bool table_persists = false;
  // Layers beside the embedding that use its weight, of the same stage: a tied head, and those that
  // predict further tokens.
  std::vector<int64_t> tied_layers;
  bool tied_across_stages = false;  // first and last stage share the embedding
  bool kv_replicated = false;
  // The routers' balancing loss counts the tokens of the whole step: kRouterLoads stands between
  // the forwards and the backwards, so forwards_come_first().
  bool sums_router_loads = false;
};

// Whether calls of the layer leave anything on the host: a layer within a run that shares a
// checkpoint keeps nothing.
bool is_offloaded(const ScheduleParameters& parameters, int64_t layer);
// The model index of the layer whose input it is computed again from; -1 = it is kept whole.
int64_t checkpoint_of(const ScheduleParameters& parameters, int64_t layer);

}  // namespace smp::schedule
