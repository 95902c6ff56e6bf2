#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

// The threads of a rank, those of torch's products. Kernels divide their rows among them.
namespace smp::kernels {

// Work that is divided: `count` items of `cost` elements each. Ranges begin at multiples of
// `multiple`. Of sums that the items add to there are as many ranges whatever the threads, so that
// these do not change what is rounded.
struct DividedWork {
  int64_t count = 0;
  int64_t cost = 1;
  int64_t multiple = 1;
  bool adds_sums = false;
};

// Number of ranges that for_ranges() makes: 1 where there are few elements.
int64_t ranges_of(const DividedWork& work);

// Calls body(range, begin, end) for ranges that together are [0, work.count), side by side on the
// threads. Returns when all are done. body must not throw, and must not allocate tensors.
void for_ranges(const DividedWork& work, c10::function_ref<void(int64_t, int64_t, int64_t)> body);

}  // namespace smp::kernels
