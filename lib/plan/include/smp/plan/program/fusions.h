#pragma once

#include <string_view>
#include <vector>

#include "smp/plan/program/program.h"

// Fusions are rules that rewrite a program: several operations become one that has a kernel of its
// own. A fusion changes no result but for rounding.
namespace smp::program {

struct FusionRule {
  std::string_view name;
  bool Fusions::*is_on;                 // its key, which is its name with underscores
  int (*apply)(LayerProgram& program);  // the number of places that it has changed
  bool is_common = true;                // other frameworks fuse this too
};
const std::vector<FusionRule>& fusion_rules();  // in the order in which they are applied

// None of them.
inline constexpr Fusions kUnfused = {false, false, false, false};

}  // namespace smp::program
