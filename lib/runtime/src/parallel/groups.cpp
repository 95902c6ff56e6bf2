#include "smp/runtime/parallel/groups.h"

#include <string>

#include "smp/plan/base/check.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/runtime/record/run_report.h"

namespace smp::parallel {

RankGroups::RankGroups(const Plan& plan, comm::Communicator& world, comm::Communicator* among_gpus)
    : by_host_(world, clock_) {
  if (among_gpus != nullptr) among_gpus_.emplace(*among_gpus, clock_);
  const auto way = [&](mesh::Axis axis) {
    const bool nccl = layout::collectives_of(plan.job.parallel, axis) == CollectivesKind::kNccl;
    if (!among_gpus_ || !nccl) return &by_host_;
    axes_among_gpus_.insert(axis);
    return &*among_gpus_;
  };
  world_ = way(mesh::Axis::kWorld);
  for (const layout::RankGroup& group : layout::rank_groups(plan, world.rank())) {
    if (group.axis == mesh::Axis::kWorld) continue;
    groups_[group.axis] =
        way(group.axis)->split_along(group.axis, {group.ranks.begin(), group.ranks.end()});
  }
}

comm::Communicator* RankGroups::find(mesh::Axis axis) {
  if (axis == mesh::Axis::kWorld) return world_;
  const auto found = groups_.find(axis);
  return found == groups_.end() ? nullptr : found->second.get();
}

comm::Communicator& RankGroups::at(mesh::Axis axis) {
  comm::Communicator* group = find(axis);
  if (group == nullptr) {
    check_failed(__FILE__, __LINE__, "no group along axis " + std::string(name_of(axis)));
  }
  return *group;
}

void RankGroups::abort(const std::string& reason) {
  (among_gpus_ ? *among_gpus_ : by_host_).abort(reason);
}

std::vector<comm::TrafficCount> RankGroups::traffic() const {
  std::vector<comm::TrafficCount> all;
  record::add_traffic(all, world_->traffic());
  for (const auto& [axis, group] : groups_) record::add_traffic(all, group->traffic());
  return all;
}

int64_t RankGroups::segment_bytes() const {
  int64_t bytes = by_host_.segment_bytes();
  for (const auto& [axis, group] : groups_) bytes += group->segment_bytes();
  return bytes;
}

}  // namespace smp::parallel
