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
  // Its members reduce or gather something together, so they must execute one list of actions: that
  // of their stage.
  bool within_stage = true;
};

// The first rank that is in no group, in two, or in one with ranks of other stages; nothing if the
// groups cut the world. Asks for each group once, and once more for its last member.
std::optional<std::string> group_problem(const AxisGroups& groups);

}  // namespace smp::layout
