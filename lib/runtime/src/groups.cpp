#include "smp/runtime/groups.h"

#include <string>

#include "smp/plan/check.h"
#include "smp/plan/rank_groups.h"
#include "smp/runtime/run_report.h"

namespace smp {

RankGroups::RankGroups(const Plan& plan, Communicator& world, Communicator* among_gpus)
    : by_host_(world, clock_) {
  if (among_gpus != nullptr) among_gpus_.emplace(*among_gpus, clock_);
  const auto way = [&](Axis axis) {
    const bool nccl = collectives_of(plan.job.parallel, axis) == CollectivesKind::kNccl;
    if (!among_gpus_ || !nccl) return &by_host_;
    axes_among_gpus_.insert(axis);
    return &*among_gpus_;
  };
  world_ = way(Axis::kWorld);
  for (const RankGroup& group : rank_groups(plan, world.rank())) {
    if (group.axis == Axis::kWorld) continue;
    groups_[group.axis] =
        way(group.axis)->split_along(group.axis, {group.ranks.begin(), group.ranks.end()});
  }
}

Communicator* RankGroups::find(Axis axis) {
  if (axis == Axis::kWorld) return world_;
  const auto found = groups_.find(axis);
  return found == groups_.end() ? nullptr : found->second.get();
}

Communicator& RankGroups::at(Axis axis) {
  Communicator* group = find(axis);
  if (group == nullptr) {
    check_failed(__FILE__, __LINE__, "no group along axis " + std::string(name_of(axis)));
  }
  return *group;
}

void RankGroups::abort(const std::string& reason) {
  (among_gpus_ ? *among_gpus_ : by_host_).abort(reason);
}

std::vector<TrafficCount> RankGroups::traffic() const {
  std::vector<TrafficCount> all;
  add_traffic(all, world_->traffic());
  for (const auto& [axis, group] : groups_) add_traffic(all, group->traffic());
  return all;
}

int64_t RankGroups::segment_bytes() const {
  int64_t bytes = by_host_.segment_bytes();
  for (const auto& [axis, group] : groups_) bytes += group->segment_bytes();
  return bytes;
}

}  // namespace smp
