#pragma once

#include "smp/plan/spec/job_spec.h"

namespace smp {

// Queries and keys that meet in causal attention over so many keys: half of the square, and with a
// window what of it lies within the window. Pure; any thread.
constexpr double seen_pairs(const ModelSpec& model, double keys) {
  const auto window = static_cast<double>(model.sliding_window);
  if (window == 0 || window >= keys) return keys * keys / 2;
  return window * keys - window * window / 2;
}

}  // namespace smp
