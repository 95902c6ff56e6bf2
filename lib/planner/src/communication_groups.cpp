#include "communication_groups.h"

#include "smp/plan/layers.h"
#include "smp/plan/mesh.h"

namespace smp {

std::vector<int64_t> communication_group_sizes(const Plan& plan, int64_t stage, int64_t tensor) {
  const Degrees& degrees = plan.degrees;
  const Mesh mesh(degrees, plan.job.parallel.placement_strategy);
  const int64_t rank = mesh.rank_of({.pipeline = stage, .tensor = tensor});
  const int64_t copies = kv_copies(plan.job.model, degrees.tensor);

  std::vector<Axis> axes = {Axis::kWorld};
  if (degrees.pipeline > 1) axes.push_back(Axis::kPipeline);
  if (degrees.tensor > 1) axes.push_back(Axis::kTensor);
  if (degrees.shard > 1) {
    axes.push_back(Axis::kShard);
    if (degrees.replica > 1) axes.push_back(Axis::kReplica);
  } else if (degrees.replica > 1) {
    axes.push_back(Axis::kData);
  }
  if (copies > 1) axes.push_back(Axis::kKvHead);
  const bool holds_tied = stage == 0 || stage + 1 == degrees.pipeline;
  if (plan.job.model.tied_embeddings && degrees.pipeline > 1 && holds_tied) {
    axes.push_back(Axis::kTied);
  }

  std::vector<int64_t> sizes;
  for (const Axis axis : axes) {
    const auto size = static_cast<int64_t>(mesh.group(rank, axis, copies).size());
    if (size > 1) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace smp
