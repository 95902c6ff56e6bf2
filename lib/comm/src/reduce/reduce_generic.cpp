#if defined(__x86_64__)
#  include <immintrin.h>
#endif

#include "reduce/reduce.h"
#include "reduce/reduce_kernels.inl"

namespace smp::reduce {

namespace {

template <class T>
void widen_all(float* to, const std::byte* from, int64_t count) {
  const T* halves = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = ::widen(halves[i]);
}

}  // namespace

void widen(float* to, const std::byte* from, int64_t count, DType dtype) {
  if (dtype == DType::kBF16) return widen_all<BF16>(to, from, count);
  widen_all<F16>(to, from, count);
}

void narrow(std::byte* to, const float* from, int64_t count, DType dtype) {
  if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<BF16*>(to)[i] = narrow_bf16(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<F16*>(to)[i] = narrow_f16(from[i]);
  }
}

ReduceKernel generic_kernel(DType dtype, comm::ReduceOp op) { return kernel(dtype, op); }

}  // namespace smp::reduce
