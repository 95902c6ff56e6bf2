#if defined(__x86_64__)
#  include <immintrin.h>
#endif

#include "reduce.h"
#include "reduce_kernels.inl"

namespace smp::shm {

void widen(float* to, const std::byte* from, int64_t count, DType dtype) {
  if (dtype == DType::kBF16) return widen_block(to, reinterpret_cast<const BF16*>(from), count);
  widen_block(to, reinterpret_cast<const F16*>(from), count);
}

void narrow(std::byte* to, const float* from, int64_t count, DType dtype) {
  if (dtype == DType::kBF16) return narrow_block(reinterpret_cast<BF16*>(to), from, count);
  narrow_block(reinterpret_cast<F16*>(to), from, count);
}

ReduceKernel generic_kernel(DType dtype, ReduceOp op) { return kernel(dtype, op); }

}  // namespace smp::shm
