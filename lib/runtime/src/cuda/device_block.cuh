#pragma once

#include <cstdint>

// A thread block as a Block (block.h): sums go through warps by shuffles, then through shared
// memory, always in the same order.
namespace smp::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;  // of every launch

class DeviceBlock {
 public:
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int64_t count() const { return gridDim.x; }
  __device__ int64_t thread() const { return threadIdx.x; }
  __device__ int64_t threads() const { return blockDim.x; }

  template <typename T>
  __device__ T sum(T value) {
    return meet(value, [](T a, T b) { return a + b; });
  }
  template <typename T>
  __device__ T maximum(T value) {
    return meet(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  template <typename T, typename Join>
  __device__ static T meet_in_warp(T value, const Join& join) {
    for (int away = kWarp / 2; away > 0; away /= 2) {
      value = join(value, __shfl_xor_sync(0xffffffffu, value, away));
    }
    return value;
  }

  template <typename T, typename Join>
  __device__ static T meet(T value, const Join& join) {
    __shared__ T of_warps[kThreads / kWarp];
    value = meet_in_warp(value, join);
    __syncthreads();  // the results of the call before have been read
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    T result = of_warps[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) result = join(result, of_warps[warp]);
    return result;
  }
};

}  // namespace smp::cuda
