#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/base/dtype.h"

namespace smp::reduce {

// to[k][i] = from[0][i] op from[1][i] op ... in this order, for all k and `count` elements. bf16
// and fp16 are added in fp32 and rounded once (to nearest even). A result may overwrite one of the
// inputs. A NaN among the inputs gives a NaN. An average divides by `ranks`, since the inputs may
// themselves be sums. Pure; the same bits on every CPU.
struct Reduction {
  std::byte* const* to;
  int outputs;
  const std::byte* const* from;
  int inputs;
  int ranks;
  bool non_temporal = false;  // by non-temporal stores, as in copy_bytes()
  int cached = 0;             // number of results, from the first, written through the cache
  int far = -1;               // index of an input to prefetch, in memory or another CPU's cache
};
void reduce_inputs(const Reduction& reduction, int64_t count, DType dtype, comm::ReduceOp op);

// As above, with one result.
void reduce_inputs(std::byte* out, const std::byte* const* from, int inputs, int64_t count,
                   DType dtype, comm::ReduceOp op, int ranks, bool non_temporal = false);

// bf16 and fp16 to fp32 and back, rounded to nearest even.
void widen(float* to, const std::byte* from, int64_t count, DType dtype);
void narrow(std::byte* to, const float* from, int64_t count, DType dtype);

using ReduceKernel = void (*)(const Reduction& reduction, int64_t bytes);

// Kernels compiled for one instruction set; they reduce `bytes` of each input.
ReduceKernel generic_kernel(DType dtype, comm::ReduceOp op);
ReduceKernel avx2_kernel(DType dtype, comm::ReduceOp op);
ReduceKernel avx512_kernel(DType dtype, comm::ReduceOp op);

// The kernels that this CPU can run, the widest vectors first.
struct ReduceKernels {
  const char* name;
  ReduceKernel (*of)(DType, comm::ReduceOp);
};
const std::vector<ReduceKernels>& reduce_kernels_here();

}  // namespace smp::reduce
