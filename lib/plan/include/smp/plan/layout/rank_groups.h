#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/mesh/collective.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// One group that a rank of the plan talks in.
struct RankGroup {
  mesh::Axis axis = mesh::Axis::kWorld;
  std::vector<int64_t> ranks;  // global, in the order of their coordinate on the axis
};

// The groups of `rank`, each of more than one rank: the world first, then those that the plan's
// messages need. The runtime opens a communicator for each, in this order, which is the same on all
// ranks; the planner counts their shared memory.
std::vector<RankGroup> rank_groups(const Plan& plan, int64_t rank);

// What moves a GPU's memory in the groups along `axis`: the axis' own key of parallel.collectives,
// or parallel.data_collectives where it is open or the axis has none.
std::optional<CollectivesKind> collectives_of(const ParallelSpec& parallel, mesh::Axis axis);
// The key that decided it, as a path.
std::string collectives_key(const ParallelSpec& parallel, mesh::Axis axis);
// The axis' own key; nothing for an axis that has none.
using CollectivesMember = std::optional<CollectivesKind> GroupCollectives::*;
CollectivesMember own_collectives(mesh::Axis axis);

// How these ranks lie on the hosts of the plan.
mesh::HostGrid grid_of(const Plan& plan, const std::vector<int64_t>& ranks);

// What a group costs each of its ranks: its part of the shared memory, and of its channels to other
// hosts.
int64_t communication_bytes(const Plan& plan, const RankGroup& group);

}  // namespace smp::layout
