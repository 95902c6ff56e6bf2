#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/sweep.h"
#include "smp/comm/communicator.h"
#include "smp/plan/base/dtype.h"

// Elements of every dtype as doubles, so that tests say what they expect in one type.
namespace smp::testing {

inline float bf16_value(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
inline uint16_t bf16_bits(float value) {  // of values that bf16 holds exactly
  uint32_t wide;
  memcpy(&wide, &value, 4);
  return uint16_t(wide >> 16);
}

// Small integers only, which fp16 holds exactly.
inline uint16_t f16_bits(int value) {
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  uint32_t magnitude = uint32_t(value < 0 ? -value : value);
  if (magnitude == 0) return sign;
  int exponent = 31 - __builtin_clz(magnitude);
  return uint16_t(sign | (exponent + 15) << 10 | ((magnitude << 10 >> exponent) & 0x3ff));
}
inline double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const double fraction = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? fraction * 0x1p-24 : (1 + fraction / 1024) * double(1 << exponent) / 32768;
  return bits & 0x8000 ? -magnitude : magnitude;
}

// A buffer of `count` elements of a dtype: zeros, or in memory that is given.
class Values {
 public:
  Values() : Values(DType::kU8, 0) {}
  Values(DType dtype, int64_t count)
      : dtype_(dtype), own_(size_t(count * bytes_of(dtype))), bytes_(own_.data()) {}
  Values(DType dtype, std::shared_ptr<std::byte[]> memory)
      : dtype_(dtype), shared_(std::move(memory)), bytes_(shared_.get()) {}
  Values(Values&&) noexcept = default;  // bytes_ goes on to be theirs
  Values& operator=(Values&&) noexcept = default;

  void* data() { return bytes_; }
  std::byte* at(int64_t i) { return bytes_ + i * bytes_of(dtype_); }
  void set(int64_t i, int value) {
    switch (dtype_) {
      case DType::kF32: return put<float>(i, float(value));
      case DType::kF64: return put<double>(i, value);
      case DType::kBF16: return put<uint16_t>(i, bf16_bits(float(value)));
      case DType::kF16: return put<uint16_t>(i, f16_bits(value));
      case DType::kI32: return put<int32_t>(i, value);
      case DType::kI64: return put<int64_t>(i, value);
      case DType::kU8: return put<uint8_t>(i, uint8_t(value));
    }
  }
  double get(int64_t i) const {
    switch (dtype_) {
      case DType::kF32: return peek<float>(i);
      case DType::kF64: return peek<double>(i);
      case DType::kBF16: return bf16_value(peek<uint16_t>(i));
      case DType::kF16: return f16_value(peek<uint16_t>(i));
      case DType::kI32: return peek<int32_t>(i);
      case DType::kI64: return double(peek<int64_t>(i));
      case DType::kU8: return peek<uint8_t>(i);
    }
    return 0;
  }

  // What repeats every kPeriod elements: written at [begin, begin + count), and how many elements
  // there are not as `is_right(i, value)` says of the first ones.
  static constexpr int64_t kPeriod = 39;
  template <class ValueAt>
  void fill(int64_t begin, int64_t count, ValueAt value) {
    int64_t done = std::min(count, kPeriod);
    for (int64_t i = 0; i < done; ++i) set(begin + i, value(i));
    for (int64_t more; done < count; done += more) {
      more = std::min(done, count - done);
      memcpy(at(begin + done), at(begin), size_t(more * bytes_of(dtype_)));
    }
  }
  template <class IsRight>
  int64_t differences(int64_t begin, int64_t count, IsRight is_right) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < std::min(count, kPeriod); ++i) wrong += !is_right(i, get(begin + i));
    const auto bytes = size_t(bytes_of(dtype_));
    if (count <= kPeriod ||
        memcmp(at(begin + kPeriod), at(begin), size_t(count - kPeriod) * bytes) == 0)
      return wrong;
    for (int64_t i = kPeriod; i < count; ++i)
      wrong += memcmp(at(begin + i), at(begin + i % kPeriod), bytes) != 0;
    return wrong;
  }

 private:
  template <class T>
  void put(int64_t i, T value) {
    memcpy(bytes_ + i * int64_t(sizeof(T)), &value, sizeof(T));
  }
  template <class T>
  T peek(int64_t i) const {
    T value;
    memcpy(&value, bytes_ + i * int64_t(sizeof(T)), sizeof(T));
    return value;
  }

  DType dtype_;
  std::vector<std::byte> own_;
  std::shared_ptr<std::byte[]> shared_;
  std::byte* bytes_ = nullptr;
};

// Sanitizers are slow, and neither a race nor a bound depends on more than an element's size.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kU8};
inline constexpr int kSizes[] = {1, 2, 3, 5, 8};
inline constexpr comm::ReduceOp kReduceOps[] = {comm::ReduceOp::kSum, comm::ReduceOp::kAverage};
#else
inline constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                                    DType::kI32, DType::kI64, DType::kU8};
inline constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8};
inline constexpr comm::ReduceOp kReduceOps[] = {comm::ReduceOp::kSum, comm::ReduceOp::kMax,
                                                comm::ReduceOp::kMin, comm::ReduceOp::kProduct,
                                                comm::ReduceOp::kAverage};
#endif

// Counts that are small, odd, divide nothing, are beside the ranks' number, and one of more than
// `most_bytes`; in a sweep also one of a million.
inline std::vector<int64_t> counts_for(DType dtype, int size, int64_t most_bytes) {
  std::vector<int64_t> counts = {
      0, 1, 2, size - 1, size + 1, 7, 1023, 4097, most_bytes / bytes_of(dtype) + 5};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (swept("SMP_COMM_SWEEP_MILLION", 0) != 0) counts.push_back((1 << 20) + 3);
  return counts;
}

// What rank `rank` puts at element i of a test, with a period of 13; sums over 8 ranks stay below
// 128.
inline int value_of(int rank, int64_t i) { return int((i * 7 + rank * 3) % 13); }

// The same of a reduction, with a period of 39: products over 8 ranks stay below 257.
inline int value_of(comm::ReduceOp op, int rank, int64_t i) {
  return op == comm::ReduceOp::kProduct ? 1 + int((i + rank) % 3 == 0) : value_of(rank, i);
}

// What `size` ranks' elements give, in fp64.
inline double reduced(comm::ReduceOp op, DType dtype, int size, int64_t i) {
  double result = value_of(op, 0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double x = value_of(op, rank, i);
    switch (op) {
      case comm::ReduceOp::kSum:
      case comm::ReduceOp::kAverage: result += x; break;
      case comm::ReduceOp::kMax: result = std::max(result, x); break;
      case comm::ReduceOp::kMin: result = std::min(result, x); break;
      case comm::ReduceOp::kProduct: result *= x; break;
    }
  }
  const bool is_integer = dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
  if (op == comm::ReduceOp::kAverage) result /= size;
  return is_integer ? std::trunc(result) : result;
}

// Only averages are rounded, once.
inline bool is_reduced(double value, comm::ReduceOp op, DType dtype, int size, int64_t i) {
  const double expected = reduced(op, dtype, size, i);
  if (op != comm::ReduceOp::kAverage) return value == expected;
  const double unit = dtype == DType::kF32    ? 0x1p-24
                      : dtype == DType::kF64  ? 0x1p-53
                      : dtype == DType::kBF16 ? 0x1p-8
                      : dtype == DType::kF16  ? 0x1p-11
                                              : 0;
  return std::abs(value - expected) <= unit * std::abs(expected);
}

}  // namespace smp::testing
