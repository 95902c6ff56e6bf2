#pragma once

#include <cstdint>

#include "cuda/block.h"

// What all launches of bodies have in common.
namespace smp::cuda {

// A lambda that a kernel runs.
#if defined(__CUDACC__)
#  define SMP_BODY __device__
#else
#  define SMP_BODY
#endif

template <typename Runner>
int64_t blocks_of(int64_t elements) {
  return (elements + Runner::kThreadsOfBlock - 1) / Runner::kThreadsOfBlock;
}

// Of launches whose threads share strips.
template <typename Runner, typename T>
int64_t blocks_of_strips(int64_t elements) {
  return blocks_of<Runner>((elements + StripWidth<T>() - 1) / StripWidth<T>());
}

// body(block), a block to each row: of so few columns that a warp has enough of them, a warp.
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
