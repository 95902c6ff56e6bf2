#pragma once

#include <cstddef>
#include <cstdint>

#include "smp/plan/base/dtype.h"

// Floating-point numbers of 16, 32 and 64 bits in the layout of files. Pure; safe from any thread.
namespace smp::safetensors {

// Converts `count` numbers; fp32, fp64, bf16 and fp16, rounded to nearest, ties to even. `out` may
// have gaps: its numbers lie `stride` numbers apart.
void convert_numbers(DType from, const std::byte* in, int64_t count, DType to, std::byte* out,
                     int64_t stride);

// How many of the numbers are infinite or not a number.
int64_t count_not_finite(DType type, const std::byte* in, int64_t count);

}  // namespace smp::safetensors
