#include "reduce/reduce.h"

#if defined(__x86_64__)
#  include <cpuid.h>
#endif

#include "smp/plan/base/check.h"

namespace smp::reduce {
namespace {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
// __builtin_cpu_supports of clang 14 does not know f16c.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

const std::vector<ReduceKernels>& reduce_kernels_here() {
  static const std::vector<ReduceKernels> kernels = [] {
    std::vector<ReduceKernels> found;
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // which sees vectors up to 16 bytes
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && has_f16c())
      found.push_back({"avx512", avx512_kernel});
    if (__builtin_cpu_supports("avx2") && has_f16c()) found.push_back({"avx2", avx2_kernel});
#endif
    found.push_back({"generic", generic_kernel});
    return found;
  }();
  return kernels;
}

namespace {

// The widest kernels. Exception: a Zen 4 computes one cached result of fp16 faster with narrower
// vectors (see docs/lab/collective-tuning.md).
ReduceKernel quickest_kernel(const Reduction& reduction, DType dtype, comm::ReduceOp op) {
  const std::vector<ReduceKernels>& kernels = reduce_kernels_here();
#if defined(__x86_64__)
  static const bool is_zen4 = kernels.size() == 3 && __builtin_cpu_is("amdfam19h") != 0;
  if (is_zen4 && dtype == DType::kF16 && reduction.outputs == 1 && !reduction.non_temporal)
    return kernels[1].of(dtype, op);
#endif
  return kernels.front().of(dtype, op);
}

}  // namespace

void reduce_inputs(const Reduction& reduction, int64_t count, DType dtype, comm::ReduceOp op) {
  if (count == 0) return;
  const ReduceKernel kernel = quickest_kernel(reduction, dtype, op);
  SMP_CHECK(kernel != nullptr);
  kernel(reduction, count * bytes_of(dtype));
}

void reduce_inputs(std::byte* out, const std::byte* const* from, int inputs, int64_t count,
                   DType dtype, comm::ReduceOp op, int ranks, bool non_temporal) {
  reduce_inputs({&out, 1, from, inputs, ranks, non_temporal}, count, dtype, op);
}

}  // namespace smp::reduce
