#include "smp/runtime/groups.h"

#include <algorithm>
#include <string>

#include "smp/plan/check.h"
#include "smp/plan/layers.h"
#include "smp/runtime/run_report.h"

namespace smp {

std::vector<Axis> used_axes(const Plan& plan) {
  const Degrees& degrees = plan.degrees;
  std::vector<Axis> axes;
  if (degrees.pipeline > 1) axes.push_back(Axis::kPipeline);
  if (degrees.tensor > 1) axes.push_back(Axis::kTensor);
  if (degrees.shard > 1) {
    axes.push_back(Axis::kShard);
    if (degrees.replica > 1) axes.push_back(Axis::kReplica);
  } else if (degrees.replica > 1) {
    axes.push_back(Axis::kData);
  }
  if (kv_copies(plan.job.model, degrees.tensor) > 1) axes.push_back(Axis::kKvHead);
  if (plan.job.model.tied_embeddings && degrees.pipeline > 1) axes.push_back(Axis::kTied);
  return axes;
}

RankGroups::RankGroups(const Plan& plan, const Mesh& mesh, Communicator& world)
    : world_(world, clock_) {
  const int64_t copies = kv_copies(plan.job.model, plan.degrees.tensor);
  for (Axis axis : used_axes(plan)) {
    const std::vector<int64_t> ranks = mesh.group(world.rank(), axis, copies);
    const std::vector<int> members(ranks.begin(), ranks.end());
    const bool member = std::find(members.begin(), members.end(), world.rank()) != members.end();
    if (member && members.size() > 1) groups_[axis] = world_.split(members);
  }
}

Communicator* RankGroups::find(Axis axis) {
  if (axis == Axis::kWorld) return &world_;
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
  world_.abort(reason);
}

std::vector<TrafficCount> RankGroups::traffic() const {
  std::vector<TrafficCount> all;
  add_traffic(all, world_.traffic());
  for (const auto& [axis, group] : groups_) add_traffic(all, group->traffic());
  return all;
}

int64_t RankGroups::segment_bytes() const {
  int64_t bytes = world_.segment_bytes();
  for (const auto& [axis, group] : groups_) bytes += group->segment_bytes();
  return bytes;
}

}  // namespace smp
