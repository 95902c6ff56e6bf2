#pragma once

#include <optional>
#include <string_view>

#include "pyscript/python_value.h"

namespace smp::pyscript {

// `left sign right` of two numbers or two texts, as Python computes it. Nothing if a 64-bit number
// cannot hold the result, or for other values. The result has no place. Pure.
std::optional<PythonValue> computed(const PythonValue& left, std::string_view sign,
                                    const PythonValue& right);

// The value of a Python literal: 1_000, 0x10, 5e8. Nothing for complex numbers and for numbers that
// are too large. Pure.
std::optional<PythonValue> number_literal(std::string_view text);

}  // namespace smp::pyscript
