#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp::report {

// Neighbouring rank classes that hold the same bytes, under one name: "stage 0, tensor 0-3".
struct ClassGroup {
  std::string name;
  const RankPrediction* rank = nullptr;  // the first of them
};
std::vector<ClassGroup> grouped(const std::vector<RankPrediction>& ranks);

}  // namespace smp::report
