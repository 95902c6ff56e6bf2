#if defined(__x86_64__)
#  include <immintrin.h>
#endif

#include "reduce/reduce.h"
#include "reduce/reduce_kernels.inl"

namespace smp::reduce {

ReduceKernel avx512_kernel(DType dtype, comm::ReduceOp op) { return kernel(dtype, op); }

}  // namespace smp::reduce
