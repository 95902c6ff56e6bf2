#include "functions/relative_positions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace smp {

// As transformers' T5 computes it, in its fp32: the logarithm decides which bucket a distance on
// the border of two falls in.
int64_t relative_bucket(int64_t distance, int64_t buckets, bool causal) {
  int64_t first = 0;
  if (causal) {
    distance = std::max<int64_t>(0, -distance);
  } else {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  }
  const int64_t single = buckets / 2;
  if (distance < single) return first + distance;
  const float share = std::log(static_cast<float>(distance) / static_cast<float>(single)) /
                      static_cast<float>(std::log(static_cast<double>(kRelativeDistance) /
                                                  static_cast<double>(single)));
  const auto wide = single + static_cast<int64_t>(share * static_cast<float>(buckets - single));
  return first + std::min(wide, buckets - 1);
}

}  // namespace smp
