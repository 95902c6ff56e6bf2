#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// fp32 rounded to nearest even in 16 bits, without branches, so that loops become vector code. NaN
// stays NaN. Pure.
namespace smp::kernels {

[[gnu::always_inline]] inline uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

// The float addition does the rounding: the summand's exponent puts the last bit that fp16 keeps,
// normal or subnormal, at the end of the mantissa. Maratyszcza's FP16 library (MIT).
[[gnu::always_inline]] inline uint16_t fp16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000;
  const uint32_t doubled = bits + bits;
  const uint32_t exponent = doubled & 0xFF000000;
  const uint32_t bias = exponent < 0x71000000 ? 0x71000000 : exponent;
  const float magnitude =
      std::fabs(value) * 0x1.0p+112F * 0x1.0p-110F;  // infinite where it is out of range
  const auto sum =
      std::bit_cast<uint32_t>(std::bit_cast<float>((bias >> 1) + 0x07800000) + magnitude);
  const uint32_t number = ((sum >> 13) & 0x7C00) + (sum & 0x0FFF);
  return static_cast<uint16_t>((sign >> 16) | (doubled > 0xFF000000 ? 0x7E00 : number));
}

}  // namespace smp::kernels
