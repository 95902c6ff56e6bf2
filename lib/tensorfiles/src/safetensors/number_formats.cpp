#include "smp/tensorfiles/safetensors/number_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "smp/plan/base/check.h"

namespace smp::safetensors {
namespace {

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
float from_fp16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = bits >> 10 & 0x1FU, fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

// Upper half of the fp32 number.
float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7E00U);
  const float size = std::abs(value);
  if (size >= 65520.0F) return static_cast<uint16_t>(sign | 0x7C00U);  // rounds beyond 65504
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  // The unit in the last place: 2^-24 below the normal numbers.
  const int unit = std::max(exponent - 11, -24);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
  // Units carry over into the exponent by themselves.
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(unit + 24) * 0x400U + units));
}

template <typename T>
T number_at(const std::byte* in, int64_t index) {
  T value;
  std::memcpy(&value, in + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

double read_number(DType dtype, const std::byte* in, int64_t index) {
  switch (dtype) {
    case DType::kF32: return number_at<float>(in, index);
    case DType::kF64: return number_at<double>(in, index);
    case DType::kBF16: return from_bf16(number_at<uint16_t>(in, index));
    case DType::kF16: return from_fp16(number_at<uint16_t>(in, index));
    default: check_failed(__FILE__, __LINE__, "not a floating-point type");
  }
}

template <typename T>
void put_number(std::byte* out, int64_t index, T value) {
  std::memcpy(out + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

void write_number(DType dtype, std::byte* out, int64_t index, double value) {
  switch (dtype) {
    case DType::kF32: return put_number(out, index, static_cast<float>(value));
    case DType::kF64: return put_number(out, index, value);
    case DType::kBF16: return put_number(out, index, to_bf16(static_cast<float>(value)));
    case DType::kF16: return put_number(out, index, to_fp16(static_cast<float>(value)));
    default: check_failed(__FILE__, __LINE__, "not a floating-point type");
  }
}

}  // namespace

void convert_numbers(DType from, const std::byte* in, int64_t count, DType to, std::byte* out,
                     int64_t stride) {
  if (from == to && stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(count * bytes_of(to)));
    return;
  }
  for (int64_t i = 0; i < count; ++i) write_number(to, out, i * stride, read_number(from, in, i));
}

int64_t count_not_finite(DType type, const std::byte* in, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += !std::isfinite(read_number(type, in, i));
  return found;
}

}  // namespace smp::safetensors
