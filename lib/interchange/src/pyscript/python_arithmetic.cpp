#include "pyscript/python_arithmetic.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

namespace smp::pyscript {
namespace {

using Kind = PythonValue::Kind;

bool is_whole(const PythonValue& value) {
  return value.kind == Kind::kWhole || value.kind == Kind::kBool;
}
double as_number(const PythonValue& value) {
  return is_whole(value) ? static_cast<double>(value.whole) : value.number;
}

PythonValue whole_of(int64_t whole) {
  PythonValue value;
  value.kind = Kind::kWhole;
  value.whole = whole;
  return value;
}

std::optional<PythonValue> number_of(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  PythonValue value;
  value.kind = Kind::kNumber;
  value.number = number;
  return value;
}

std::optional<PythonValue> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return number_of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (exponent > 1024) return std::nullopt;
  int64_t product = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(product, base, &product)) return std::nullopt;
  }
  return whole_of(product);
}

// Python rounds down, not towards zero.
std::optional<PythonValue> divided(int64_t left, int64_t right, bool wants_rest) {
  if (right == 0 || right == -1) {
    int64_t negated = 0;
    if (right == 0 || __builtin_sub_overflow(int64_t{0}, left, &negated)) return std::nullopt;
    return whole_of(wants_rest ? 0 : negated);
  }
  const bool below = left % right != 0 && (left < 0) != (right < 0);
  if (wants_rest) return whole_of(left % right + (below ? right : 0));
  return whole_of(left / right - (below ? 1 : 0));
}

std::optional<PythonValue> of_wholes(int64_t left, std::string_view sign, int64_t right) {
  int64_t result = 0;
  if (sign == "+" && !__builtin_add_overflow(left, right, &result)) return whole_of(result);
  if (sign == "-" && !__builtin_sub_overflow(left, right, &result)) return whole_of(result);
  if (sign == "*" && !__builtin_mul_overflow(left, right, &result)) return whole_of(result);
  if (sign == "//" || sign == "%") return divided(left, right, sign == "%");
  if (sign == "**") return power(left, right);
  if (sign == "/" && right != 0) {
    return number_of(static_cast<double>(left) / static_cast<double>(right));
  }
  return std::nullopt;
}

}  // namespace

std::optional<PythonValue> computed(const PythonValue& left, std::string_view sign,
                                    const PythonValue& right) {
  constexpr size_t kMostText = 1 << 20;
  if (left.kind == Kind::kText && right.kind == Kind::kText && sign == "+" &&
      left.text.size() + right.text.size() <= kMostText) {
    PythonValue value = left;
    value.text += right.text;
    return value;
  }
  const auto is_number = [](const PythonValue& value) {
    return is_whole(value) || value.kind == Kind::kNumber;
  };
  if (!is_number(left) || !is_number(right)) return std::nullopt;
  if (is_whole(left) && is_whole(right)) return of_wholes(left.whole, sign, right.whole);
  const double a = as_number(left);
  const double b = as_number(right);
  if (sign == "+") return number_of(a + b);
  if (sign == "-") return number_of(a - b);
  if (sign == "*") return number_of(a * b);
  if (sign == "/") return number_of(a / b);
  if (sign == "//") return number_of(std::floor(a / b));
  if (sign == "**") return number_of(std::pow(a, b));
  return std::nullopt;
}

std::optional<PythonValue> number_literal(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  const bool hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
  const char* const begin = digits.data() + (hexadecimal ? 2 : 0);
  const char* const end = digits.data() + digits.size();
  int64_t whole = 0;
  const auto as_whole = std::from_chars(begin, end, whole, hexadecimal ? 16 : 10);
  const bool octal = digits.size() > 1 && digits[0] == '0' && !hexadecimal && whole != 0;
  if (as_whole.ec == std::errc() && as_whole.ptr == end && !octal) return whole_of(whole);
  if (hexadecimal) return std::nullopt;
  double number = 0;
  const auto as_number = std::from_chars(begin, end, number);
  const bool is_float = digits.find_first_of(".eE") != std::string::npos;
  if (as_number.ec != std::errc() || as_number.ptr != end || !is_float) return std::nullopt;
  return number_of(number);
}

}  // namespace smp::pyscript
