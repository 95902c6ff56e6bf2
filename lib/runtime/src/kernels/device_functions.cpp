#include "kernels/device_functions.h"

#include <numeric>

namespace smp::kernels {

int64_t count_square_sums(const DeviceFunctions& device, const std::vector<FlatRange>& ranges) {
  int64_t count = 1;
  for (const FlatRange& range : ranges) count += device.count_square_sums(range);
  return count;
}

std::vector<double> sums_of_ranges(const DeviceFunctions& device,
                                   const std::vector<FlatRange>& ranges, const double* sums) {
  std::vector<double> result;
  for (const FlatRange& range : ranges) {
    const int64_t count = device.count_square_sums(range);
    result.push_back(std::accumulate(sums, sums + count, 0.0));
    sums += count;
  }
  result.push_back(*sums);
  return result;
}

}  // namespace smp::kernels
