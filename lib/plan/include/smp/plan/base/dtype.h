#pragma once

#include <cstdint>
#include <string_view>

namespace smp {

// Element types that plans, messages and files name.
enum class DType { kF32, kF64, kBF16, kF16, kI32, kI64, kU8 };

int64_t bytes_of(DType dtype);
// Of what is summed: 16-bit elements are summed in fp32.
inline DType wide(DType dtype) { return bytes_of(dtype) == 2 ? DType::kF32 : dtype; }
std::string_view name_of(DType dtype);  // "fp32", "fp64", "bf16", "fp16", "int32", "int64", "uint8"

}  // namespace smp
