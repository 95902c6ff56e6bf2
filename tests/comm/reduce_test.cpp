#include "reduce.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "comm/values.h"
#include "smp/plan/proof.h"

using namespace smp;
using namespace smp::shm;
using namespace smp::testing;

namespace {

// Bits that are any value of the dtype, infinities and subnormals included; NaNs are compared as
// such.
std::vector<std::byte> random_bits(DType dtype, int64_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size_t(count * bytes_of(dtype)));
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

bool is_nan(DType dtype, const std::byte* at) {
  uint16_t half;
  float single;
  double twice;
  switch (dtype) {
    case DType::kF16: memcpy(&half, at, 2); return (half & 0x7fff) > 0x7c00;
    case DType::kBF16: memcpy(&half, at, 2); return (half & 0x7fff) > 0x7f80;
    case DType::kF32: memcpy(&single, at, 4); return std::isnan(single);
    case DType::kF64: memcpy(&twice, at, 8); return std::isnan(twice);
    default: return false;
  }
}

int64_t different(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const int64_t element = bytes_of(dtype);
  int64_t count = 0;
  for (int64_t at = 0; at < int64_t(a.size()); at += element) {
    if (is_nan(dtype, &a[size_t(at)]) && is_nan(dtype, &b[size_t(at)])) continue;
    count += memcmp(&a[size_t(at)], &b[size_t(at)], size_t(element)) != 0;
  }
  return count;
}

}  // namespace

TEST_CASE("every instruction set gives the same bits") {
  constexpr int64_t kCount = 20011;
  constexpr int kRanks = 6;  // of an average: some inputs are sums
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kReduceOps)
      for (const int inputs : {2, 3, 4, 7}) {
        std::vector<std::vector<std::byte>> data;
        std::vector<const std::byte*> from;
        for (int i = 0; i < inputs; ++i)
          data.push_back(random_bits(dtype, kCount, uint32_t(i + 1)));
        for (const auto& d : data) from.push_back(d.data());
        std::vector<std::byte> plain(data[0].size()), wide(data[0].size());
        generic_kernel(dtype, op)(plain.data(), from.data(), inputs, kCount, kRanks);
        // The best of this CPU.
        reduce_inputs(wide.data(), from.data(), inputs, kCount, dtype, op, kRanks);
        CAPTURE(name_of(dtype));
        CAPTURE(name_of(op));
        CHECK(different(dtype, plain, wide) == 0);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
          avx2_kernel(dtype, op)(wide.data(), from.data(), inputs, kCount, kRanks);
          CHECK(different(dtype, plain, wide) == 0);
        }
#endif
      }
}

TEST_CASE("16-bit sums round to the nearest, ties to even, for every value") {
  // Each value plus zero is itself: widening and narrowing are exact on all 65536 of them.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> values(65536), zeros(65536), sums(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = uint16_t(i);
    const std::byte* from[] = {reinterpret_cast<const std::byte*>(values.data()),
                               reinterpret_cast<const std::byte*>(zeros.data())};
    generic_kernel(dtype, ReduceOp::kSum)(reinterpret_cast<std::byte*>(sums.data()), from, 2, 65536,
                                          2);
    int64_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto* at = reinterpret_cast<const std::byte*>(&values[i]);
      const uint16_t minus_zero = 0x8000;  // -0 + 0 is +0
      if (!is_nan(dtype, at) && values[i] != minus_zero) wrong += sums[i] != values[i];
    }
    CHECK(wrong == 0);
  }
  // 2048 + 1 is a tie in fp16 and goes down to the even 2048; 2048 + 3 goes up to 2052.
  const uint16_t a[2] = {f16_bits(2048), f16_bits(2048)}, b[2] = {f16_bits(1), f16_bits(3)};
  uint16_t sum[2];
  const std::byte* from[] = {reinterpret_cast<const std::byte*>(a),
                             reinterpret_cast<const std::byte*>(b)};
  reduce_inputs(reinterpret_cast<std::byte*>(sum), from, 2, 2, DType::kF16, ReduceOp::kSum, 2);
  CHECK(f16_value(sum[0]) == 2048);
  CHECK(f16_value(sum[1]) == 2052);
}

TEST_CASE("a 16-bit average is rounded once, and integers are divided toward zero") {
  // The sum is no fp16, the average is.
  const uint16_t big[2] = {f16_bits(65504), f16_bits(65504)};
  uint16_t mean = 0;
  const auto* half = reinterpret_cast<const std::byte*>(big);
  const std::byte* halves[] = {half, half + 2};
  reduce_inputs(reinterpret_cast<std::byte*>(&mean), halves, 2, 1, DType::kF16, ReduceOp::kAverage,
                2);
  CHECK(mean == f16_bits(65504));
  const int32_t a[2] = {-7, 7}, b[2] = {0, 0};
  int32_t out[2];
  const std::byte* integers[] = {reinterpret_cast<const std::byte*>(a),
                                 reinterpret_cast<const std::byte*>(b)};
  reduce_inputs(reinterpret_cast<std::byte*>(out), integers, 2, 2, DType::kI32, ReduceOp::kAverage,
                2);
  CHECK(out[0] == -3);
  CHECK(out[1] == 3);
  // As many ranks as a byte counts, and more.
  const uint8_t bytes[2] = {200, 50};
  uint8_t average = 1;
  const std::byte* two[] = {reinterpret_cast<const std::byte*>(&bytes[0]),
                            reinterpret_cast<const std::byte*>(&bytes[1])};
  for (const auto& [ranks, expected] : {std::pair{250, 1}, {256, 0}, {300, 0}}) {
    reduce_inputs(reinterpret_cast<std::byte*>(&average), two, 2, 1, DType::kU8, ReduceOp::kAverage,
                  ranks);
    CHECK(average == expected);
  }
}

TEST_CASE("the proof of a job's key: SipHash-2-4 test vectors, and no two keys alike") {
  const uint64_t k0 = 0x0706050403020100, k1 = 0x0f0e0d0c0b0a0908;
  CHECK(siphash(k0, k1, "") == 0x726fdb47dd0e0e31);
  CHECK(siphash(k0, k1, std::string(1, '\0')) == 0x74f839c593dc67fd);
  CHECK(!equal(authenticate("a", "m"), authenticate("b", "m")));
  CHECK(!equal(authenticate("a", "m"), authenticate("a", "n")));
  CHECK(equal(authenticate("a", "m"), authenticate("a", "m")));
}
