#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/adamw_kernel.h"
#include "kernels/sgd_kernel.h"
#include "kernels/sixteen_bits.h"

using namespace smp;
using namespace smp::kernels;

namespace {

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// The weights after three updates of `count` elements, and their copies.
struct Updated {
  std::vector<float> weights;
  std::vector<uint16_t> copy;
};

template <typename Update>
Updated three_updates(int64_t count, bool copies, DType dtype, const Update& update) {
  const auto n = static_cast<size_t>(count);
  std::vector<float> gradients(n), first(n), second(n);
  Updated out{std::vector<float>(n), std::vector<uint16_t>(n)};
  for (size_t i = 0; i < n; ++i) out.weights[i] = std::sin(static_cast<float>(i));
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < n; ++i) gradients[i] = std::cos(static_cast<float>(i) * 3.0F);
    UpdateRange<float> range;
    range.count = count;
    range.gradients = gradients.data();
    range.weights = out.weights.data();
    range.states = {first.data(), second.data()};
    range.copy = copies ? out.copy.data() : nullptr;
    range.copy_dtype = dtype;
    update(range);
  }
  return out;
}

}  // namespace

TEST_CASE("fp32 is rounded to bf16 and fp16 as torch rounds it") {
  int64_t different = 0;
  const auto compare = [&](float value) {
    different += bf16_bits(value) != c10::BFloat16(value).x && !std::isnan(value);
    different += fp16_bits(value) != c10::Half(value).x && !std::isnan(value);
  };
  // Every exponent and sign with mantissas around each place where rounding changes.
  for (uint32_t high = 0; high < 1 << 16; ++high) {
    for (const uint32_t low :
         {0U, 1U, 0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      compare(float_of(high << 16 | low));
    }
  }
  for (uint64_t bits = 0; bits <= std::numeric_limits<uint32_t>::max(); bits += 4099) {
    compare(float_of(static_cast<uint32_t>(bits)));
  }
  CHECK(different == 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(static_cast<float>(c10::BFloat16(bf16_bits(nan), c10::BFloat16::from_bits()))));
  CHECK(std::isnan(static_cast<float>(c10::Half(fp16_bits(-nan), c10::Half::from_bits()))));
}

TEST_CASE("an update of master weights is that of fp32 weights, and its copy is them rounded") {
  AdamWFactors adamw;
  adamw.beta1 = 0.9;
  adamw.beta2 = 0.95;
  adamw.epsilon = 1e-8;
  adamw.rate = 1e-2;
  const SgdFactors sgd{0.5, 0.1, 0.9, 1e-2, true};
  const auto by_adamw = [&](const UpdateRange<float>& range) { adamw_update(adamw, range); };
  const auto by_sgd = [&](const UpdateRange<float>& range) { sgd_update(sgd, range); };
  const auto check = [](const auto& update) {
    for (const int64_t count : {1, 7, 64, 1000}) {
      const Updated plain = three_updates(count, false, DType::kF32, update);
      const Updated bf16 = three_updates(count, true, DType::kBF16, update);
      const Updated fp16 = three_updates(count, true, DType::kF16, update);
      CHECK(plain.weights == bf16.weights);
      CHECK(plain.weights == fp16.weights);
      for (size_t i = 0; i < plain.weights.size(); ++i) {
        CHECK(bf16.copy[i] == c10::BFloat16(plain.weights[i]).x);
        CHECK(fp16.copy[i] == c10::Half(plain.weights[i]).x);
      }
    }
  };
  check(by_adamw);
  check(by_sgd);
}
