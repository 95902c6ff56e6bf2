#include "smp/plan/layout/plan_products.h"

#include <algorithm>
#include <map>
#include <set>

#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/program/build.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

std::vector<program::SizedProduct> plan_products(const Plan& plan) {
  const ModelSpec& model = plan.job.model;
  std::map<program::MatrixProduct, int64_t> most_rows;
  // Shares of a dimension have two sizes at most, the first rank's and the last one's.
  for (const int64_t tensor_rank : std::set<int64_t>{0, plan.degrees.tensor - 1}) {
    const model::LayerCall call = layer_call(plan, tensor_rank);
    program::OfAlikeLayers<std::vector<program::SizedProduct>> known(model);
    for (const model::LayerSpec& layer : model::layers_of(model)) {
      const auto& products = known.of(
          layer, [&] { return program::matrix_products(program::build(model, layer, call)); });
      for (const auto& [matrix, rows] : products)
        most_rows[matrix] = std::max(most_rows[matrix], rows);
    }
  }
  std::vector<program::SizedProduct> all;
  for (const auto& [matrix, rows] : most_rows) all.push_back({matrix, rows});
  return all;
}

}  // namespace smp::layout
