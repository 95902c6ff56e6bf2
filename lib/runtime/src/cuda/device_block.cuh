#pragma once

#include <cstdint>

// A thread block, or one of its warps, as a Block (block.h). Reductions use shuffles inside a warp
// and shared memory between the warps of a thread block. The order of additions is fixed.
namespace smp::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;  // threads of a block, in every launch
inline constexpr int kWarps = kThreads / kWarp;

class DeviceBlock {
 public:
  __device__ explicit DeviceBlock(bool is_warp) : is_warp_(is_warp) {}

  __device__ int64_t index() const {
    return is_warp_ ? int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp : blockIdx.x;
  }
  __device__ int64_t count() const { return is_warp_ ? int64_t{gridDim.x} * kWarps : gridDim.x; }
  __device__ int64_t thread() const { return is_warp_ ? threadIdx.x % kWarp : threadIdx.x; }
  __device__ int64_t threads() const { return is_warp_ ? kWarp : kThreads; }

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
  __device__ T meet(T value, const Join& join) const {
    value = meet_in_warp(value, join);
    if (is_warp_) return value;
    __shared__ T of_warps[kWarps];
    __syncthreads();  // all threads have read the results of the previous call
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    T result = of_warps[0];
    for (int warp = 1; warp < kWarps; ++warp) result = join(result, of_warps[warp]);
    return result;
  }

  const bool is_warp_;  // a constant in each kernel
};

}  // namespace smp::cuda
