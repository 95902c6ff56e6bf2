#include "smp/plan/rank_groups.h"

#include <algorithm>

#include "smp/plan/layers.h"
#include "smp/plan/layout.h"
#include "smp/plan/plan.h"

namespace smp {

std::vector<RankGroup> rank_groups(const Plan& plan, int64_t rank) {
  const Degrees& degrees = plan.degrees;
  const int64_t copies = kv_copies(plan);

  std::vector<Axis> axes = {Axis::kWorld, Axis::kPipeline, Axis::kTensor, Axis::kContext};
  if (degrees.shard > 1) {
    axes.push_back(Axis::kShard);
    axes.push_back(Axis::kReplica);
  } else {
    axes.push_back(Axis::kData);
  }
  axes.push_back(Axis::kExpert);
  axes.push_back(Axis::kKvHead);
  if (tied_across_stages(plan)) axes.push_back(Axis::kTied);

  const Mesh mesh(degrees, plan.job.parallel.placement_strategy);
  std::vector<RankGroup> groups;
  for (const Axis axis : axes) {
    std::vector<int64_t> ranks = mesh.group(rank, axis, copies);
    const bool member = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (member && ranks.size() > 1) groups.push_back({axis, std::move(ranks)});
  }
  return groups;
}

}  // namespace smp
