#pragma once

#include <c10/core/ScalarType.h>

#include "smp/plan/base/check.h"
#include "smp/plan/base/dtype.h"

namespace smp::ledger {

inline c10::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return c10::ScalarType::Float;
    case DType::kF64: return c10::ScalarType::Double;
    case DType::kBF16: return c10::ScalarType::BFloat16;
    case DType::kF16: return c10::ScalarType::Half;
    case DType::kI32: return c10::ScalarType::Int;
    case DType::kI64: return c10::ScalarType::Long;
    case DType::kU8: return c10::ScalarType::Byte;
  }
  check_failed(__FILE__, __LINE__, "unknown dtype");
}

// Of the types that the engine's tensors have.
inline DType dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return DType::kF32;
    case c10::ScalarType::Double: return DType::kF64;
    case c10::ScalarType::BFloat16: return DType::kBF16;
    case c10::ScalarType::Half: return DType::kF16;
    case c10::ScalarType::Long: return DType::kI64;
    default: check_failed(__FILE__, __LINE__, "a type that the engine does not use");
  }
}

}  // namespace smp::ledger
