#pragma once

#include <cmath>

namespace smp::testing {

// The larger one, or NaN if one of them is that: std::max would drop it, and a check pass.
inline double worst_of(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace smp::testing
