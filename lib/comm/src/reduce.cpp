#include "reduce.h"

#include "smp/plan/check.h"

namespace smp::shm {
namespace {

ReduceKernel choose(DType dtype, ReduceOp op) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    return avx512_kernel(dtype, op);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    return avx2_kernel(dtype, op);
#endif
  return generic_kernel(dtype, op);
}

}  // namespace

void reduce_inputs(const Reduction& reduction, int64_t count, DType dtype, ReduceOp op) {
  if (count == 0) return;
  const ReduceKernel kernel = choose(dtype, op);
  SMP_CHECK(kernel != nullptr);
  kernel(reduction, count * bytes_of(dtype));
}

void reduce_inputs(std::byte* out, const std::byte* const* from, int inputs, int64_t count,
                   DType dtype, ReduceOp op, int ranks, bool stream) {
  reduce_inputs({&out, 1, from, inputs, ranks, stream}, count, dtype, op);
}

}  // namespace smp::shm
