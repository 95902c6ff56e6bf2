#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/dtype.h"

namespace smp::shm {

// to[k][i] = from[0][i] op from[1][i] op ... in this order, for all k and `count` elements; bf16
// and fp16 in fp32, rounded once (to nearest even). A result may be one of the inputs. A NaN among
// the inputs gives a NaN. An average is that of `ranks` contributions, of which the inputs are
// sums. Pure; the same bits on every CPU.
struct Reduction {
  std::byte* const* to;
  int outputs;
  const std::byte* const* from;
  int inputs;
  int ranks;
  bool stream = false;  // writes around the cache, as copy_bytes() does, but for the first
  int cached = 0;       // so many results
  int far = -1;         // an input that comes from memory or another CPU's cache: fetched ahead
};
void reduce_inputs(const Reduction& reduction, int64_t count, DType dtype, ReduceOp op);

// With one result.
void reduce_inputs(std::byte* out, const std::byte* const* from, int inputs, int64_t count,
                   DType dtype, ReduceOp op, int ranks, bool stream = false);

// bf16 and fp16 to fp32 and back, rounded to nearest even.
void widen(float* to, const std::byte* from, int64_t count, DType dtype);
void narrow(std::byte* to, const float* from, int64_t count, DType dtype);

using ReduceKernel = void (*)(const Reduction& reduction, int64_t bytes);

// Kernels compiled for one instruction set, of `bytes` of each input.
ReduceKernel generic_kernel(DType dtype, ReduceOp op);
ReduceKernel avx2_kernel(DType dtype, ReduceOp op);
ReduceKernel avx512_kernel(DType dtype, ReduceOp op);

// Those that this CPU can run, the widest first.
struct ReduceKernels {
  const char* name;
  ReduceKernel (*of)(DType, ReduceOp);
};
const std::vector<ReduceKernels>& reduce_kernels_here();

}  // namespace smp::shm
