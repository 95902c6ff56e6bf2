#include "engine/router_loads.h"

#include <algorithm>
#include <vector>

#include "smp/plan/base/check.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/router_loads.h"

namespace smp::engine {
namespace {

// Calls body(choices, place) for each of this rank's layers of experts; `place`: of its first
// expert among those of all layers.
template <typename Body>
void for_each_router(const Plan& plan, parallel::ParallelModel& model, const Body& body) {
  const std::vector<model::LayerSpec>& here = model.parameters->layout().layers;
  int64_t place = 0;
  for (const model::LayerSpec& layer : model::layers_of(plan.job.model)) {
    if (!model::has_experts(plan.job.model, layer)) continue;
    const auto own = std::ranges::find(here, layer.index, &model::LayerSpec::index);
    if (own != here.end()) {
      body(*model.layers[static_cast<size_t>(own - here.begin())]->step_choices(), place);
    }
    place += plan.job.model.num_experts;
  }
}

}  // namespace

void sum_router_loads(const Plan& plan, parallel::ParallelModel& model) {
  const int64_t count = model::router_loads(plan.job.model);
  std::vector<double> sums(static_cast<size_t>(count));
  // All ranks of a tensor group have the same choices.
  if (model.parameters->layout().coord.tensor == 0) {
    for_each_router(plan, model, [&](const std::vector<double>& choices, int64_t place) {
      SMP_CHECK_EQ(static_cast<int64_t>(choices.size()), plan.job.model.num_experts);
      std::copy(choices.begin(), choices.end(), sums.begin() + place);
    });
  }
  if (model.groups->world().size() > 1) {
    model.groups->world()
        .all_reduce(sums.data(), sums.data(), count, DType::kF64, comm::ReduceOp::kSum,
                    "step.router_loads")
        ->wait();
  }
  const auto microbatches =
      static_cast<double>(*plan.job.training.microbatches * plan.degrees.data());
  for_each_router(plan, model, [&](std::vector<double>& choices, int64_t place) {
    choices.resize(static_cast<size_t>(plan.job.model.num_experts));
    for (double& choice : choices) choice = sums[static_cast<size_t>(place++)] / microbatches;
  });
}

void forget_router_loads(parallel::ParallelModel& model) {
  for (const auto& layer : model.layers) {
    if (std::vector<double>* choices = layer->step_choices()) choices->clear();
  }
}

}  // namespace smp::engine
