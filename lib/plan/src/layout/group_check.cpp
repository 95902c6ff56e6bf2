#include "layout/group_check.h"

#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

std::string text(int64_t value) { return std::to_string(value); }

std::string name(const AxisGroups& groups, int64_t rank) {
  return std::string(name_of(groups.axis)) + " group of rank " + text(rank);
}

// What is wrong with the group of `rank`, which is in none of those seen.
std::optional<std::string> problem_of(const AxisGroups& groups, int64_t rank,
                                      std::vector<char>& seen) {
  const std::vector<int64_t> members = groups.group_of(rank);
  for (const int64_t member : members) {
    if (member < 0 || member >= groups.world) {
      return name(groups, rank) + ": unknown rank " + text(member);
    }
    if (seen[static_cast<size_t>(member)]) {
      return name(groups, rank) + ": rank " + text(member) + " is in another group too";
    }
    seen[static_cast<size_t>(member)] = 1;
    if (groups.within_stage && groups.stage_of(member) != groups.stage_of(rank)) {
      return name(groups, rank) + ": rank " + text(member) + " is on stage " +
             text(groups.stage_of(member)) + ", not " + text(groups.stage_of(rank)) +
             ", which executes other actions";
    }
  }
  if (!seen[static_cast<size_t>(rank)]) return name(groups, rank) + " is without it";
  if (groups.group_of(members.back()) != members) {
    return name(groups, rank) + ": rank " + text(members.back()) + " lists other members";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> group_problem(const AxisGroups& groups) {
  std::vector<char> seen(static_cast<size_t>(groups.world), 0);
  for (int64_t rank = 0; rank < groups.world; ++rank) {
    if (seen[static_cast<size_t>(rank)]) continue;
    if (auto problem = problem_of(groups, rank, seen)) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> verify_groups(const Plan& plan) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const int64_t copies = kv_copies(plan);
  const int64_t world = plan.degrees.world();
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t back = mesh.rank_of(mesh.coord_of(rank));
    if (back == rank) continue;
    return "rank " + text(rank) + " has the place of rank " + text(back);
  }
  for (const mesh::Axis axis :
       {mesh::Axis::kPipeline, mesh::Axis::kTensor, mesh::Axis::kContext, mesh::Axis::kRing,
        mesh::Axis::kExchange, mesh::Axis::kData, mesh::Axis::kShard, mesh::Axis::kReplica,
        mesh::Axis::kTensorData, mesh::Axis::kExpert, mesh::Axis::kExpertData,
        mesh::Axis::kExpertShard, mesh::Axis::kKvHead}) {
    const AxisGroups groups{
        .axis = axis,
        .world = world,
        .group_of = [&mesh, axis, copies](int64_t rank) { return mesh.group(rank, axis, copies); },
        .stage_of = [&mesh](int64_t rank) { return mesh.coord_of(rank).pipeline; },
        .within_stage = axis != mesh::Axis::kPipeline};
    if (auto problem = group_problem(groups)) return problem;
  }
  return std::nullopt;
}

}  // namespace smp::layout
