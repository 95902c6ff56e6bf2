#pragma once

// Qualifier of functions for host and device: CPU loops inline them into each of their vector
// clones, and nvcc compiles them for the GPU.
#if defined(__CUDACC__)
#  define SMP_HOST_DEVICE __host__ __device__ inline
#else
#  define SMP_HOST_DEVICE [[gnu::always_inline]] inline
#endif
