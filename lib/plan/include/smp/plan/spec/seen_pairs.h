#pragma once

#include "smp/plan/spec/job_spec.h"

namespace smp {

// Pairs of query and key in causal attention over this many keys: half of the square; with a
// window, the part of that half within the window. Pure; any thread.
constexpr double seen_pairs(const ModelSpec& model, double keys) {
  const auto window = static_cast<double>(model.sliding_window);
  if (window == 0 || window >= keys) return keys * keys / 2;
  return window * keys - window * window / 2;
}

}  // namespace smp
