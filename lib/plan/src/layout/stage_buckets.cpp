#include "smp/plan/layout/stage_buckets.h"

#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

int64_t kv_copies(const Plan& plan) {
  return plan.job.parallel.tensor_parallel.attention
             ? model::kv_copies(plan.job.model, plan.degrees.tensor)
             : 1;
}

StateShare state_share(const Plan& plan, const mesh::Coord& coord) {
  const mesh::Degrees& degrees = plan.degrees;
  const int64_t context = degrees.context;
  const bool shards =
      degrees.shard > 1 || plan.job.parallel.sharding.value_or(Sharding::kNone) != Sharding::kNone;
  // The context coordinate varies fastest, as in the groups (mesh.h).
  if (!shards) {
    return {.replicas = context * degrees.data(),
            .replica = coord.data(degrees) * context + coord.context};
  }
  return {.shards = context * degrees.shard,
          .replicas = degrees.replica,
          .shard = coord.shard * context + coord.context,
          .replica = coord.replica};
}

bool shares_experts(const Plan& plan) {
  return plan.degrees.expert > 1 && exchanges_rows(plan.job);
}

// A block of ranks that hold all experts lies within a replica where states are sharded
// (rules::engine_experts_problem).
StateShare expert_share(const Plan& plan, const mesh::Coord& coord) {
  const mesh::Degrees& degrees = plan.degrees;
  if (!shares_experts(plan)) return state_share(plan, coord);
  const int64_t block = degrees.expert * degrees.expert_tensor;
  const int64_t of_replica = degrees.tensor * degrees.context * degrees.shard;
  const int64_t place =
      (coord.shard * degrees.context + coord.context) * degrees.tensor + coord.tensor;
  if (state_share(plan).shards == 1) {
    const int64_t ranks = degrees.tensor * degrees.context * degrees.data();
    return {.replicas = ranks / block, .replica = (coord.replica * of_replica + place) / block};
  }
  return {.shards = of_replica / block,
          .replicas = degrees.replica,
          .shard = place / block,
          .replica = coord.replica};
}

bool shards_gradients(const Plan& plan) {
  return state_share(plan).shards > 1 &&
         plan.job.parallel.sharding.value_or(Sharding::kNone) >= Sharding::kGradients;
}

bool shards_weights(const Plan& plan) {
  return state_share(plan).shards > 1 && plan.job.parallel.sharding == Sharding::kParameters;
}

bool tied_across_stages(const Plan& plan) {
  const schedule::ScheduleShape shape = chunks_of(plan);
  const int64_t head = schedule::place_of_chunk(shape, shape.stages * shape.chunks() - 1).stage;
  return model::reuses_embedding(plan.job.model) && head != 0;
}

}  // namespace smp::layout
