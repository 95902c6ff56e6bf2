#include "kernels/threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

namespace smp::kernels {
namespace {

// What pays for waking a thread.
constexpr int64_t kLeastElements = 16 << 10;

}  // namespace

int64_t ranges_of(const DividedWork& work) {
  if (omp_in_parallel() != 0) return 1;
  const int64_t units = (work.count + work.multiple - 1) / work.multiple;
  const int64_t worth = work.count * work.cost / kLeastElements;
  return std::max<int64_t>(1, std::min<int64_t>({at::get_num_threads(), units, worth}));
}

void for_ranges(const DividedWork& work, c10::function_ref<void(int64_t, int64_t, int64_t)> body) {
  const int64_t ranges = ranges_of(work);
  if (ranges == 1) return body(0, 0, work.count);
  const int64_t units = (work.count + work.multiple - 1) / work.multiple;
  const auto begin_of = [&](int64_t range) {
    return std::min(work.count, units * range / ranges * work.multiple);
  };
#pragma omp parallel for num_threads(static_cast <int>(ranges)) schedule(static, 1)
  for (int64_t range = 0; range < ranges; ++range) {
    body(range, begin_of(range), begin_of(range + 1));
  }
}

}  // namespace smp::kernels
