#include "gpu_ways.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/errors.h"
#include "smp/plan/rank_groups.h"

namespace smp {
namespace {

std::vector<RankGroup> groups_by_nccl(const Plan& plan, int64_t rank) {
  std::vector<RankGroup> groups = rank_groups(plan, rank);
  std::erase_if(groups, [&](const RankGroup& group) {
    return collectives_of(plan.job.parallel, group.axis) != CollectivesKind::kNccl;
  });
  return groups;
}

}  // namespace

bool uses_nccl(const Plan& plan, int64_t rank) { return !groups_by_nccl(plan, rank).empty(); }

void check_own_gpus(const Plan& plan, int64_t rank, const std::vector<GpuPlace>& places) {
  const auto at = [&](int64_t r) -> const GpuPlace& { return places[static_cast<size_t>(r)]; };
  for (const RankGroup& group : groups_by_nccl(plan, rank)) {
    for (const int64_t peer : group.ranks) {
      if (peer == rank || at(peer) != at(rank)) continue;
      const std::string key = collectives_key(plan.job.parallel, group.axis);
      throw ConfigError(fmt::format(
          "{}: nccl needs a GPU for each rank, and ranks {} and {} of a {} group share GPU {}: use "
          "fewer ranks, or {}: smddp",
          key, std::min(peer, rank), std::max(peer, rank), name_of(group.axis), at(rank).index,
          key.substr(key.find('.') + 1)));
    }
  }
}

}  // namespace smp
