#include "smp/plan/model/router_loads.h"

#include <algorithm>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::model {

int64_t router_loads(const ModelSpec& model) {
  if (model.num_experts == 0 || model.router_balance_loss == 0 ||
      model.router_balance_over != BalanceOver::kBatch) {
    return 0;
  }
  const std::vector<LayerSpec> layers = layers_of(model);
  return model.num_experts *
         std::count_if(layers.begin(), layers.end(),
                       [&](const LayerSpec& layer) { return has_experts(model, layer); });
}

}  // namespace smp::model
