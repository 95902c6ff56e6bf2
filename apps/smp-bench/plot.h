#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace smp {

// Bus bandwidth over size, one line for each call and type, out of place where it can be, as an SVG
// that reads in light and dark pages.
std::string as_plot(const std::vector<BenchResult>& results, int ranks);

}  // namespace smp
