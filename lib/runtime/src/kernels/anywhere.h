#pragma once

// Functions that loops of the CPU inline into each of their vector clones, and that nvcc compiles
// for the GPU as well.
#if defined(__CUDACC__)
#  define SMP_ANYWHERE __host__ __device__ inline
#else
#  define SMP_ANYWHERE [[gnu::always_inline]] inline
#endif
