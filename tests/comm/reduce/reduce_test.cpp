#include "reduce/reduce.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/values.h"
#include "smp/plan/base/proof.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::reduce;
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

std::vector<const std::byte*> addresses_of(const std::vector<std::vector<std::byte>>& data) {
  std::vector<const std::byte*> addresses;
  for (const auto& d : data) addresses.push_back(d.data());
  return addresses;
}

// What a 16-bit sum must be: an fp32 number rounded once, by its distances to its neighbours.
double value_of(DType dtype, uint16_t bits) {
  if (dtype == DType::kBF16) return double(bf16_value(bits));
  if ((bits & 0x7c00) < 0x7c00) return f16_value(bits);
  return bits & 0x3ff ? double(NAN) : bits & 0x8000 ? -double(INFINITY) : double(INFINITY);
}
uint16_t rounded_once(DType dtype, float sum) {
  const uint16_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
  const auto sign = uint16_t(std::signbit(sum) ? 0x8000 : 0);
  const double size = std::fabs(double(sum));
  if (std::isnan(sum)) return infinity + 1;
  if (std::isinf(sum)) return sign | infinity;
  uint16_t below = 0;  // the largest magnitude that is not above
  for (uint16_t bit = 0x4000; bit != 0; bit >>= 1)
    if ((below | bit) < infinity && value_of(dtype, below | bit) <= size) below |= bit;
  // Above the largest number the next one would lie as far away as the one below.
  const double low = value_of(dtype, below);
  const double high = below + 1 < infinity ? value_of(dtype, uint16_t(below + 1))
                                           : 2 * low - value_of(dtype, uint16_t(below - 1));
  const bool up = size - low > high - size || (size - low == high - size && below % 2 == 1);
  return uint16_t(sign | (below + up));
}

}  // namespace

TEST_CASE("every instruction set gives the same bits, in all results, around the cache or not") {
  constexpr int64_t kCount = 2011;
  constexpr int kRanks = 6;       // of an average: some inputs are sums
  constexpr int64_t kSkewed = 3;  // elements that some results lie off a line of the cache
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kReduceOps)
      for (const int inputs : {2, 3, 4, 5, 6, 7, 8, 9, 10, 18}) {  // 9 are read apart
        std::vector<std::vector<std::byte>> data;
        for (int i = 0; i < inputs; ++i)
          data.push_back(random_bits(dtype, kCount, uint32_t(i + 1)));
        const std::vector<const std::byte*> from = addresses_of(data);
        const size_t bytes = data[0].size();
        std::vector<std::byte> plain(bytes);
        std::byte* const only = plain.data();
        generic_kernel(dtype, op)({&only, 1, from.data(), inputs, kRanks}, int64_t(bytes));
        for (const ReduceKernels& kernel : reduce_kernels_here())
          for (const bool non_temporal : {false, true})
            for (const int64_t skew : {int64_t{0}, kSkewed}) {
              std::vector<std::byte> first(bytes + 64), second(bytes + 64);
              const int64_t off = skew * bytes_of(dtype);
              std::byte* const to[] = {first.data() + off,
                                       second.data() + (non_temporal ? off : 0)};
              const int far =
                  non_temporal ? inputs - 1 : -1;  // what follows it is fetched, if it is there
              kernel.of(dtype, op)({to, 2, from.data(), inputs, kRanks, non_temporal, 0, far},
                                   int64_t(bytes));
              CAPTURE(name_of(dtype));
              CAPTURE(name_of(op));
              CAPTURE(inputs);
              CAPTURE(kernel.name);
              for (std::byte* result : to)
                CHECK(different(dtype, plain, {result, result + bytes}) == 0);
            }
      }
}

TEST_CASE("a result takes the place of any input, at any address and of any length") {
  for (const ReduceKernels& kernel : reduce_kernels_here())
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kU8})
      for (const int inputs : {2, 4})
        for (const bool non_temporal : {false, true})
          for (int64_t count = 0; count < 300; count += count < 70 ? 1 : 23) {
            const int64_t element = bytes_of(dtype), begin = count % 5 * element;
            std::vector<std::vector<std::byte>> data;
            for (int k = 0; k < inputs; ++k)
              data.push_back(random_bits(dtype, count + 5, uint32_t(k + 1)));
            auto from = addresses_of(data);
            for (const std::byte*& address : from) address += begin;
            std::vector<std::byte> expected(size_t(count * element));
            std::byte* to = expected.data();
            generic_kernel(dtype, ReduceOp::kSum)({&to, 1, from.data(), inputs, inputs},
                                                  count * element);
            for (int k = 0; k < inputs; ++k) {
              auto own = data[size_t(k)];
              to = own.data() + begin;
              auto with_own = from;
              with_own[size_t(k)] = to;
              const int far = non_temporal ? -1 : (k + 1) % inputs;
              kernel.of(dtype, ReduceOp::kSum)(
                  {&to, 1, with_own.data(), inputs, inputs, non_temporal, 0, far}, count * element);
              CAPTURE(kernel.name);
              CAPTURE(count);
              CAPTURE(inputs);
              CHECK(different(dtype, expected, {to, to + count * element}) == 0);
              auto rest = data[size_t(k)];  // nothing beside it is written
              std::copy(to, to + count * element, rest.begin() + begin);
              CHECK(rest == own);
            }
          }
}

TEST_CASE("16-bit sums are sums in fp32, rounded once, of all values and with all specials") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const uint16_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
    const auto one = uint16_t(dtype == DType::kF16 ? 0x3c00 : 0x3f80);
    std::vector<uint16_t> values(65536), seconds(65536), results(65536), expected(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = uint16_t(i);
    // Zeros, the least and the largest subnormals, normals, ties, infinities and NaNs.
    for (const uint16_t second :
         {uint16_t(0), uint16_t(0x8000), uint16_t(1), uint16_t(0x8001), one, uint16_t(one + 1),
          uint16_t(0x8000 | one), uint16_t(infinity - 1), uint16_t(0x8000 | (infinity - 1)),
          infinity, uint16_t(0x8000 | infinity), uint16_t(infinity + 1), uint16_t(0x7fff),
          uint16_t(dtype == DType::kF16 ? 0x03ff : 0x007f)}) {
      std::fill(seconds.begin(), seconds.end(), second);
      for (size_t i = 0; i < values.size(); ++i)
        expected[i] =
            rounded_once(dtype, float(value_of(dtype, values[i])) + float(value_of(dtype, second)));
      const std::byte* const from[] = {reinterpret_cast<const std::byte*>(values.data()),
                                       reinterpret_cast<const std::byte*>(seconds.data())};
      const auto bytes_of_all = [](const std::vector<uint16_t>& all) {
        const auto* at = reinterpret_cast<const std::byte*>(all.data());
        return std::vector<std::byte>(at, at + 2 * all.size());
      };
      for (const ReduceKernels& kernel : reduce_kernels_here()) {
        auto* to = reinterpret_cast<std::byte*>(results.data());
        kernel.of(dtype, ReduceOp::kSum)({&to, 1, from, 2, 2}, 2 * 65536);
        CAPTURE(name_of(dtype));
        CAPTURE(kernel.name);
        CAPTURE(second);
        CHECK(different(dtype, bytes_of_all(expected), bytes_of_all(results)) == 0);
      }
    }
  }
}

TEST_CASE("16-bit sums round to the nearest, ties to even, for every value") {
  // Each value plus zero is itself: widening and narrowing are exact on all 65536 of them.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> values(65536), zeros(65536), sums(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = uint16_t(i);
    const std::byte* from[] = {reinterpret_cast<const std::byte*>(values.data()),
                               reinterpret_cast<const std::byte*>(zeros.data())};
    auto* to = reinterpret_cast<std::byte*>(sums.data());
    generic_kernel(dtype, ReduceOp::kSum)({&to, 1, from, 2, 2}, 2 * 65536);
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
