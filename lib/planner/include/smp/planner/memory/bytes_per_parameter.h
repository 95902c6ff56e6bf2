#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::memory {

// What one parameter costs while training, unsharded; the constants with Adam.
struct BytesPerParameter {
  int64_t weight = 0;         // what forward and backward compute with
  int64_t gradient = 0;       // what is accumulated
  int64_t gradient_copy = 0;  // a second one in fp32
  int64_t master = 0;         // fp32 weights beside 16-bit ones
  int64_t momentum = 0;
  int64_t variance = 0;

  constexpr int64_t optimizer() const { return master + momentum + variance; }
  constexpr int64_t total() const { return weight + gradient + gradient_copy + optimizer(); }
};
inline constexpr BytesPerParameter kAmpAdam{2, 2, 4, 4, 4, 4};  // fp16; SMP's and DeepSpeed's 20
inline constexpr BytesPerParameter kBf16{2, 4, 0, 4, 4, 4};     // ours and Megatron's bf16: 18
inline constexpr BytesPerParameter kFp32{4, 4, 0, 0, 4, 4};     // 16
inline constexpr BytesPerParameter kFp64{8, 8, 0, 0, 8, 8};     // 32, for parity runs

// Of a resolved job. Our engine on CPUs takes fp16 gradients as it takes bf16 ones: in fp32 alone.
BytesPerParameter bytes_per_parameter(const JobSpec& job);

}  // namespace smp::memory
