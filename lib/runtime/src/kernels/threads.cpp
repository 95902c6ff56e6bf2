#include "kernels/threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

namespace smp::kernels {
namespace {

// What pays for waking a thread.
constexpr int64_t kLeastElements = 16 << 10;
constexpr int64_t kRangesOfSums = 16;  // more threads than that are of no use

}  // namespace

int64_t ranges_of(const DividedWork& work) {
  const int64_t most = work.adds_sums ? kRangesOfSums : at::get_num_threads();
  const int64_t units = (work.count + work.multiple - 1) / work.multiple;
  const int64_t worth = work.count * work.cost / kLeastElements;
  return std::max<int64_t>(1, std::min({most, units, worth}));
}

void for_ranges(const DividedWork& work, c10::function_ref<void(int64_t, int64_t, int64_t)> body) {
  const int64_t ranges = ranges_of(work);
  const int64_t units = (work.count + work.multiple - 1) / work.multiple;
  const auto run = [&](int64_t range) {
    const auto begin_of = [&](int64_t one) {
      return std::min(work.count, units * one / ranges * work.multiple);
    };
    body(range, begin_of(range), begin_of(range + 1));
  };
  const int64_t threads = std::min<int64_t>(ranges, at::get_num_threads());
  if (threads == 1 || omp_in_parallel() != 0) {
    for (int64_t range = 0; range < ranges; ++range) run(range);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
  for (int64_t range = 0; range < ranges; ++range) run(range);
}

}  // namespace smp::kernels
