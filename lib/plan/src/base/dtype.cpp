#include "smp/plan/base/dtype.h"

#include "smp/plan/base/check.h"

namespace smp {

int64_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kF64: return 8;
    case DType::kBF16: return 2;
    case DType::kF16: return 2;
    case DType::kI32: return 4;
    case DType::kI64: return 8;
    case DType::kU8: return 1;
  }
  check_failed(__FILE__, __LINE__, "unknown dtype");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "fp32";
    case DType::kF64: return "fp64";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
    case DType::kI32: return "int32";
    case DType::kI64: return "int64";
    case DType::kU8: return "uint8";
  }
  check_failed(__FILE__, __LINE__, "unknown dtype");
}

}  // namespace smp
