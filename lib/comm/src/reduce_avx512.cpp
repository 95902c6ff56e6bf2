#if defined(__x86_64__)
#  include <immintrin.h>
#endif

#include "reduce.h"
#include "reduce_kernels.inl"

namespace smp::shm {

ReduceKernel avx512_kernel(DType dtype, ReduceOp op) { return kernel(dtype, op); }

}  // namespace smp::shm
