#include "gpu/gpu_collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/errors.h"
#include "smp/plan/layout/rank_groups.h"

namespace smp::gpu {
namespace {

std::vector<layout::RankGroup> groups_by_nccl(const Plan& plan, int64_t rank) {
  std::vector<layout::RankGroup> groups = layout::rank_groups(plan, rank);
  std::erase_if(groups, [&](const layout::RankGroup& group) {
    return layout::collectives_of(plan.job.parallel, group.axis) != CollectivesKind::kNccl;
  });
  return groups;
}

}  // namespace

bool uses_nccl(const Plan& plan, int64_t rank) { return !groups_by_nccl(plan, rank).empty(); }

void check_own_gpus(const Plan& plan, int64_t rank, const std::vector<GpuLocation>& places) {
  const auto at = [&](int64_t r) -> const GpuLocation& { return places[static_cast<size_t>(r)]; };
  for (const layout::RankGroup& group : groups_by_nccl(plan, rank)) {
    for (const int64_t peer : group.ranks) {
      if (peer == rank || at(peer) != at(rank)) continue;
      const std::string key = layout::collectives_key(plan.job.parallel, group.axis);
      throw ConfigError(
          fmt::format("{}: nccl needs one GPU per rank, but ranks {} and {} of a {} group share "
                      "GPU {}: use fewer ranks, or set {}: host",
                      key, std::min(peer, rank), std::max(peer, rank), name_of(group.axis),
                      at(rank).index, key.substr(key.find('.') + 1)));
    }
  }
}

}  // namespace smp::gpu
