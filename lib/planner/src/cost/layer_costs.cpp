#include "cost/layer_costs.h"

#include <algorithm>
#include <utility>

#include "cost/frozen_layers.h"
#include "cost/held_by_messages.h"
#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/operators.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

// What all blocks have in common, and their fullest.
void add_fullest(LayerBytes& layers) {
  const LayerKinds& kinds = *layers.kinds;
  layers.boundary = layers.embedding().call.output;
  for (size_t kind = kinds.first_block(); kind < kinds.end_blocks(); ++kind) {
    const KindBytes& each = layers.of_kind[kind];
    const auto raise = [](double& most, double one) { most = std::max(most, one); };
    if (!kinds.has_embedding()) raise(layers.boundary, each.call.output);
    raise(layers.largest_block_parameters, each.all_parameters());
    raise(layers.trained_block_parameters, each.adds.dense + each.adds.experts);
    raise(layers.frozen_block_bytes, each.adds.frozen_bytes + each.adds.frozen_expert_bytes);
  }
  layers.largest_layer_parameters = std::max(
      {layers.largest_block_parameters, layers.embedding().parameters, layers.head().parameters});
}

uint64_t bits(int64_t value, int width) {
  return static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
}

}  // namespace

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                       std::shared_ptr<const LayerKinds> kinds, const KindPrograms& programs) {
  LayerBytes layers;
  layers.kinds = std::move(kinds);
  for (size_t i = 0; i < layers.kinds->size(); ++i) {
    const LayerKinds::Kind& kind = (*layers.kinds)[i];
    KindBytes& bytes = layers.of_kind.emplace_back();
    count_parameters(bytes, job, choice, kind.layer);
    if (model::freezes_weights(job)) {
      freeze_parameters(bytes, job, choice, kind.layer, kind.is_frozen);
    }
    bytes.call = call_bytes(job, choice, kind.layer, kind.is_frozen, programs[i].memory);
  }
  add_fullest(layers);
  if (runs_in_engine(job) || model::is_list(job.model)) return layers;
  const size_t block = layers.kinds->first_block();
  const double whole = element_bytes(choice.precision) *
                       static_cast<double>(call_of(job, choice).tokens()) *
                       static_cast<double>(job.model.hidden_size);
  layers.held = held_by_messages(job, choice, (*layers.kinds)[block].layer, whole);
  return layers;
}

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice) {
  auto kinds = std::make_shared<LayerKinds>(job);
  const KindPrograms programs = kind_programs(job, choice, *kinds);
  return layer_bytes(job, choice, std::move(kinds), programs);
}

LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           std::shared_ptr<const LayerKinds> kinds, const KindPrograms& programs) {
  LayerSeconds seconds;
  seconds.kinds = std::move(kinds);
  for (size_t i = 0; i < seconds.kinds->size(); ++i) {
    const LayerKinds::Kind& kind = (*seconds.kinds)[i];
    seconds.of_kind.push_back(
        call_seconds(job, choice, kind.layer, kind.is_frozen, programs[i].program));
  }
  return seconds;
}

LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice) {
  auto kinds = std::make_shared<LayerKinds>(job);
  const KindPrograms programs = kind_programs(job, choice, *kinds);
  return layer_seconds(job, choice, std::move(kinds), programs);
}

uint64_t program_key(const choice::LayoutChoice& choice) {
  uint64_t key = bits(choice.tensor, 10);
  key = key << 10 | bits(choice.context, 10);
  key = key << 10 | bits(choice.exchange, 10);
  key = key << 12 | bits(choice.expert, 12);
  key = key << 8 | bits(choice.expert_tensor, 8);
  key = key << 3 | bits(static_cast<int64_t>(choice.precision), 3);
  return key << 1 | bits(choice.sequence_parallel, 1);
}

LayerKey layer_key(const JobSpec& job, const choice::LayoutChoice& choice) {
  const bool crosses = framework::framework_model(job).pipeline_crossing_s > 0 &&
                       choice.pipeline > 1 && boundaries_between_hosts(choice, job) > 0;
  const int64_t casts = casts_weights(job, choice) ? choice.microbatches : 0;
  uint64_t rest = bits(casts, 40);
  rest = rest << 15 | bits(choice.micro_batch, 15);
  rest = rest << 3 | bits(static_cast<int64_t>(choice.placement), 3);
  rest = rest << 1 | bits(choice.pipeline > 1, 1);
  rest = rest << 2 | bits(static_cast<int64_t>(choice.recompute), 2);
  return {program_key(choice), rest << 1 | bits(crosses, 1)};
}

}  // namespace smp::cost
