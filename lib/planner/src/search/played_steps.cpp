#include "search/played_steps.h"

#include <algorithm>
#include <utility>

#include "smp/plan/layout/partition.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "time/step_simulation.h"

namespace smp::search {
namespace {

CollectivesKind collectives_along(const ParallelSpec& parallel, mesh::Axis axis) {
  return layout::collectives_of(parallel, axis).value_or(CollectivesKind::kNccl);
}

}  // namespace

const time::TimePrediction& PlayedSteps::of(const choice::LayoutChoice& choice, const Plan& plan,
                                            const cost::LayerCosts& costs) {
  const ParallelSpec& parallel = plan.job.parallel;
  Played played{
      .choice = choice,
      .blocks = layout::blocks_per_chunk(layout::chunks_of(plan),
                                         model::block_count(plan.job.model), parallel.partition),
      .collectives = {collectives_along(parallel, mesh::Axis::kTensor),
                      collectives_along(parallel, mesh::Axis::kShard),
                      collectives_along(parallel, mesh::Axis::kReplica),
                      collectives_along(parallel, mesh::Axis::kData),
                      parallel.data_collectives.value_or(CollectivesKind::kNccl)}};
  const auto known = std::find_if(played_.begin(), played_.end(),
                                  [&](const Played& one) { return one.is_alike(played); });
  if (known != played_.end()) return known->time;
  played.time = time::simulate_step(plan, costs, time::PlayedDetail::kSums).time;
  return played_.emplace_back(std::move(played)).time;
}

}  // namespace smp::search
