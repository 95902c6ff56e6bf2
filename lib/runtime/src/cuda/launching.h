#pragma once

#include <cstdint>

#include "cuda/block.h"

// Common parts of all launches.
namespace smp::cuda {

// Marks a lambda that a kernel runs.
#if defined(__CUDACC__)
#  define SMP_BODY __device__
#else
#  define SMP_BODY
#endif

template <typename Runner>
int64_t blocks_of(int64_t elements) {
  return (elements + Runner::kThreadsOfBlock - 1) / Runner::kThreadsOfBlock;
}

// Number of blocks of a launch that distributes strips over threads.
template <typename Runner, typename T>
int64_t blocks_of_strips(int64_t elements) {
  return blocks_of<Runner>((elements + StripWidth<T>() - 1) / StripWidth<T>());
}

// Runs body with one Block per row: a warp if the row is short, else a thread block.
inline constexpr int64_t kColumnsOfWarp = 2048;
template <typename Runner, typename Body>
void run_rows(const Runner& runner, int64_t rows, int64_t cols, const Body& body) {
  if (cols <= kColumnsOfWarp) {
    runner.run_warps(rows, body);
  } else {
    runner.run(rows, body);
  }
}

}  // namespace smp::cuda
