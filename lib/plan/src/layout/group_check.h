#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/mesh/mesh.h"

namespace smp::layout {

// The groups of one axis of a world.
struct AxisGroups {
  mesh::Axis axis = mesh::Axis::kTensor;
  int64_t world = 1;
  std::function<std::vector<int64_t>(int64_t rank)> group_of;
  std::function<int64_t(int64_t rank)> stage_of;
  // The members of a group reduce or gather together, so they must be ranks of one stage, which
  // execute one list of actions.
  bool within_stage = true;
};

// The problem of the first rank that is in no group, in two groups, or in a group with ranks of
// other stages; nothing if the groups partition the world. Calls group_of() once for each group,
// and once more for its last member.
std::optional<std::string> group_problem(const AxisGroups& groups);

}  // namespace smp::layout
