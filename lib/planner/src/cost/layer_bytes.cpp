#include "smp/planner/cost/layer_bytes.h"

#include <algorithm>

#include "cost/engine_bytes.h"
#include "cost/frozen_layers.h"
#include "cost/held_by_messages.h"
#include "cost/kind_specs.h"
#include "cost/layer_parameters.h"
#include "cost/program_bytes.h"
#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

void add_share(CallBytes& sum, const CallBytes& call, double share) {
  for (double CallBytes::*part :
       {&CallBytes::saved, &CallBytes::selective, &CallBytes::checkpoint, &CallBytes::recomputed,
        &CallBytes::output, &CallBytes::forward, &CallBytes::input_gradient}) {
    sum.*part += share * call.*part;
  }
  sum.workspace = std::max(sum.workspace, call.workspace);
}

uint64_t bits(int64_t value, int width) {
  return static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
}

}  // namespace

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice) {
  LayerBytes layers;
  count_parameters(layers, job, choice);
  const bool freezes = model::freezes_weights(job);
  if (freezes) count_frozen(layers, job, choice);
  const double tokens = static_cast<double>(choice.micro_batch) *
                        static_cast<double>(job.training.sequence_length) / choice.context;
  if (!runs_in_engine(job) && !model::is_list(job.model)) {
    layers.held = held_by_messages(job, choice,
                                   element_bytes(choice.precision) * tokens *
                                       static_cast<double>(job.model.hidden_size));
  }
  for (const WeighedSpec& one : kind_specs(job)) {
    const auto price = [&](CallBytes& call, bool is_frozen = false) {
      add_share(call,
                call_bytes(job, choice, one.layer, layer_program(job, choice, one.layer, is_frozen),
                           is_frozen),
                one.share);
    };
    switch (one.layer.kind) {
      case model::LayerKind::kEmbedding: price(layers.embedding); break;
      case model::LayerKind::kHead:
      case model::LayerKind::kLastOperators: price(layers.head); break;
      case model::LayerKind::kMoeBlock:
        price(layers.moe_block);
        if (freezes) price(layers.frozen_moe_block.call, true);
        break;
      case model::LayerKind::kCrossBlock:
        price(layers.cross_block);
        if (freezes) price(layers.frozen_cross_block.call, true);
        break;
      default:
        price(layers.block);
        if (freezes) price(layers.frozen_block.call, true);
    }
  }
  if (freezes) freeze_calls(layers, job, choice);
  return layers;
}

LayerKey layer_key(const JobSpec& job, const choice::LayoutChoice& choice) {
  uint64_t key = bits(choice.tensor, 10);
  key = key << 10 | bits(choice.context, 10);
  key = key << 12 | bits(choice.expert, 12);
  key = key << 8 | bits(choice.expert_tensor, 8);
  key = key << 15 | bits(choice.micro_batch, 15);
  // Five precisions by three kinds of recompute.
  key =
      key << 4 |
      bits(3 * static_cast<int64_t>(choice.precision) + static_cast<int64_t>(choice.recompute), 4);
  key = key << 1 | bits(choice.sequence_parallel, 1);
  key = key << 3 | bits(static_cast<int64_t>(choice.placement), 3);
  key = key << 1 | bits(choice.pipeline > 1, 1);
  const bool crosses = framework::framework_model(job).pipeline_crossing_s > 0 &&
                       choice.pipeline > 1 && boundaries_between_hosts(choice, job) > 0;
  const int64_t casts = casts_weights(job, choice) ? choice.microbatches : 0;
  return {key, static_cast<uint64_t>(casts) << 1 | (crosses ? 1 : 0)};
}

}  // namespace smp::cost
