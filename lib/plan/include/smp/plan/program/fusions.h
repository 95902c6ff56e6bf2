#pragma once

#include <string_view>
#include <vector>

#include "smp/plan/program/program.h"

// Fusions are rules that rewrite a program: several operations become one that has a kernel of its
// own. A fusion changes no result but for rounding.
namespace smp::program {

struct FusionRule {
  std::string_view name;
  int (*apply)(LayerProgram& program);  // the number of places that it has changed
};
const std::vector<FusionRule>& fusion_rules();

inline constexpr std::string_view kBiasAndAttention = "bias and attention";

}  // namespace smp::program
