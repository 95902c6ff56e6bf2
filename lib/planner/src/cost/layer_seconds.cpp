#include "smp/planner/cost/layer_seconds.h"

#include "cost/frozen_layers.h"
#include "cost/kind_specs.h"
#include "cost/layer_program.h"
#include "cost/program_seconds.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/operators.h"

namespace smp::cost {
namespace {

CallSeconds seconds_of(const JobSpec& job, const choice::LayoutChoice& choice,
                       const model::LayerSpec& layer, bool is_frozen = false) {
  return call_seconds(job, choice, layer, layer_program(job, choice, layer, is_frozen), is_frozen);
}

void add_share(CallSeconds& sum, const CallSeconds& call, double share) {
  for (double CallSeconds::*part :
       {&CallSeconds::matmul_forward, &CallSeconds::matmul_backward, &CallSeconds::memory_forward,
        &CallSeconds::memory_backward, &CallSeconds::launch_forward, &CallSeconds::launch_backward,
        &CallSeconds::recompute, &CallSeconds::tensor_forward, &CallSeconds::tensor_backward,
        &CallSeconds::context_forward, &CallSeconds::context_backward, &CallSeconds::expert_forward,
        &CallSeconds::expert_backward}) {
    sum.*part += share * call.*part;
  }
  sum.weights_share = call.weights_share;
}

// A forward alone.
void forward_alone(CallSeconds& call) {
  call.matmul_backward = call.memory_backward = call.launch_backward = call.recompute = 0;
  call.tensor_backward = call.context_backward = call.expert_backward = 0;
}

}  // namespace

LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice) {
  LayerSeconds seconds;
  for (const WeighedSpec& one : kind_specs(job)) {
    const auto price = [&](CallSeconds& call, bool is_frozen = false) {
      add_share(call, seconds_of(job, choice, one.layer, is_frozen), one.share);
    };
    const bool freezes = model::freezes_weights(job) && model::frozen_parts(job).first_blocks > 0;
    switch (one.layer.kind) {
      case model::LayerKind::kEmbedding: price(seconds.embedding); break;
      case model::LayerKind::kHead:
      case model::LayerKind::kLastOperators: price(seconds.head); break;
      case model::LayerKind::kMoeBlock:
        price(seconds.moe_block);
        if (freezes) price(seconds.frozen_moe_block, true);
        break;
      case model::LayerKind::kCrossBlock:
        price(seconds.cross_block);
        if (freezes) price(seconds.frozen_cross_block, true);
        break;
      default:
        price(seconds.block);
        if (freezes) price(seconds.frozen_block, true);
    }
  }
  if (!model::freezes_weights(job)) return seconds;
  const model::FrozenParts parts = model::frozen_parts(job);
  if (!trains_blocks(job) || parts.embedding) forward_alone(seconds.embedding);
  if (!parts.first_blocks_end_backward()) return seconds;
  for (CallSeconds* block :
       {&seconds.frozen_block, &seconds.frozen_moe_block, &seconds.frozen_cross_block}) {
    forward_alone(*block);
  }
  return seconds;
}

}  // namespace smp::cost
