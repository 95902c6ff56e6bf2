#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/block_product.h"
#include "kernels/expert_rows.h"
#include "kernels/kernels.h"
#include "kernels/transposed_sum.h"
#include "kernels/vector_math.h"
#include "tolerances.h"
#include "worst.h"

using namespace smp;
using namespace smp::kernels;

namespace {

template <typename T>
std::vector<T> arbitrary(int64_t count) {
  static std::mt19937 engine(3);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = T(engine()) / T(1u << 31) - T(1);
  return values;
}

// Of a number near `exact`.
double ulps(float ours, double exact) {
  const float rounded = static_cast<float>(exact);
  const double ulp = std::nextafter(std::abs(rounded), INFINITY) - std::abs(rounded);
  return std::abs(ours - exact) / ulp;
}

template <typename T>
void check_product(int64_t rows, int64_t cols, int64_t depth, bool turned, bool add) {
  const int64_t b_stride = cols + 3, c_stride = cols + 5;
  const std::vector<T> a = arbitrary<T>(rows * depth);
  const std::vector<T> b = arbitrary<T>(depth * b_stride + kProductOverread);
  std::vector<T> c = arbitrary<T>(rows * c_stride);
  const std::vector<T> before = c;
  const Factor<T> factor = turned ? Factor<T>{a.data(), 1, rows} : Factor<T>{a.data(), depth, 1};
  block_product(rows, cols, depth, T(0.5), factor, b.data(), b_stride, add, c.data(), c_stride);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < c_stride; ++j) {
      const auto at = static_cast<size_t>(r * c_stride + j);
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const auto in_a = static_cast<size_t>(turned ? k * rows + r : r * depth + k);
        sum += static_cast<double>(a[in_a]) *
               static_cast<double>(b[static_cast<size_t>(k * b_stride + j)]);
      }
      double expected = 0.5 * sum + (add ? static_cast<double>(before[at]) : 0.0);
      if (j >= cols) expected = static_cast<double>(before[at]);  // beyond the row: untouched
      const double per_term = sizeof(T) == 4 ? tolerance::kProductF32 : tolerance::kProductF64;
      const auto terms = static_cast<double>(depth + 1);
      CHECK(std::abs(static_cast<double>(c[at]) - expected) <= per_term * terms);
    }
  }
}

}  // namespace

TEST_CASE("kernels: e^x in fp32 is exact to 2 ulp over its whole range") {
  double worst = 0;
  for (double x = -87.0; x < 88.3; x += 0.00137) {
    const auto rounded = static_cast<float>(x);
    worst = smp::testing::worst_of(
        worst, ulps(vector_exp(rounded), std::exp(static_cast<double>(rounded))));
  }
  CHECK(worst < tolerance::kExponentialUlps);
  CHECK(vector_exp(0.0f) == 1.0f);
  CHECK(vector_exp(-1e9f) < 1.3e-38f);
}

TEST_CASE("kernels: GELU in fp32 follows the fp64 tanh form") {
  const int64_t count = 4001;
  std::vector<float> u(count), bias(count, 0.0f), y(count);
  for (int64_t i = 0; i < count; ++i) {
    u[static_cast<size_t>(i)] = -10.0f + 0.005f * static_cast<float>(i);
  }
  activation_forward({1, count, ActivationKind::kGelu, false}, u.data(), bias.data(), y.data());
  for (size_t i = 0; i < u.size(); ++i) {
    const double x = u[i];
    const double z = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double exact = x / (1 + std::exp(-2 * z));  // = x / 2 * (1 + tanh(z))
    // Far below zero the rounding of z is magnified by its size.
    CHECK(std::abs(y[i] - exact) <= tolerance::kGelu * std::abs(exact) * (1 + std::abs(z)) + 1e-37);
  }
}

TEST_CASE("kernels: exact GELU in fp32 follows fp64 far below zero too, and so does its slope") {
  const int64_t count = 4001;
  std::vector<float> u(count), bias(count, 0.0f), y(count), dy(count, 1.0f), sums(count, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    u[static_cast<size_t>(i)] = -10.0f + 0.005f * static_cast<float>(i);
  }
  activation_forward({1, count, ActivationKind::kGeluErf, false}, u.data(), bias.data(), y.data());
  std::vector<float> value = u;
  activation_backward({1, count, ActivationKind::kGeluErf, false}, value.data(), bias.data(),
                      dy.data(), sums.data());
  for (size_t i = 0; i < u.size(); ++i) {
    const double x = u[i], below = 0.5 * std::erfc(-x / M_SQRT2);
    const double slope = below + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    // Far below zero the rounding of x^2 is magnified by its size.
    const double allowed = tolerance::kGelu * (1 + x * x / 4);
    CHECK(std::abs(y[i] - x * below) <= allowed * std::abs(x * below) + 1e-37);
    CHECK(value[i] == y[i]);
    CHECK(std::abs(dy[i] - slope) <=
          allowed * std::max(std::abs(slope), std::abs(x * below)) + 1e-37);
  }
}

TEST_CASE("kernels: products of blocks of every shape") {
  for (const int64_t rows : {1, 7, 8, 19}) {
    for (const int64_t cols : {1, 4, 16, 20, 32, 57}) {
      for (const int64_t depth : {1, 6, 33}) {
        for (const bool turned : {false, true}) {
          for (const bool add : {false, true}) {
            check_product<float>(rows, cols, depth, turned, add);
            check_product<double>(rows, cols, depth, turned, add);
          }
        }
      }
    }
  }
}

TEST_CASE("kernels: a transpose is added element by element, whatever its shape") {
  for (const int64_t rows : {1, 15, 16, 33, 64}) {
    for (const int64_t cols : {1, 16, 17, 48}) {
      const int64_t stride = cols + 3;
      const std::vector<float> x = arbitrary<float>(rows * cols);
      std::vector<float> sums = arbitrary<float>(rows * stride);
      std::vector<float> expected = sums;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          expected[static_cast<size_t>(r * stride + c)] +=
              0.5F * x[static_cast<size_t>(c * rows + r)];
        }
      }
      add_transposed(rows, cols, 0.5F, x.data(), sums.data(), stride);
      CAPTURE(rows);
      CAPTURE(cols);
      CHECK(sums == expected);
    }
  }
}

TEST_CASE("kernels: bf16 and fp16 are widened exactly and rounded to nearest even") {
  // Every 16-bit pattern but NaN comes back; what lies between two is rounded to the nearer one.
  const auto check = [](auto zero) {
    using T = decltype(zero);
    for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      const T value = std::bit_cast<T>(static_cast<uint16_t>(pattern));
      float wide = 0;
      widen(1, &value, &wide);
      const bool same = wide == static_cast<float>(value) || std::isnan(wide);
      T back;
      narrow(1, &wide, &back);
      const bool round_trip = std::bit_cast<uint16_t>(back) == pattern || std::isnan(wide);
      const float between = wide * (1.0f + 0x1p-12f);
      narrow(1, &between, &back);
      const bool nearest =
          std::bit_cast<uint16_t>(back) == std::bit_cast<uint16_t>(T(between)) || std::isnan(wide);
      if (!same || !round_trip || !nearest) FAIL_CHECK("pattern ", pattern);
    }
    std::vector<float> wide = arbitrary<float>(37);
    std::vector<T> many(37);
    narrow(37, wide.data(), many.data());
    for (size_t i = 0; i < wide.size(); ++i) CHECK(many[i] == T(wide[i]));
  };
  check(c10::BFloat16());
  check(c10::Half());
}

namespace {

template <typename T>
std::vector<T> arbitrary_of(int64_t count) {
  std::vector<T> values;
  for (const float value : arbitrary<float>(count)) values.push_back(static_cast<T>(value));
  return values;
}

// Against the two kernels one after the other, to the bit.
template <typename T>
void check_sum_and_norm(int64_t rows, bool centered, bool has_bias, const Dropout& dropout) {
  const NormShape shape{.rows = rows, .cols = 150, .centered = centered};
  const int64_t count = rows * shape.cols;
  const auto x = arbitrary_of<T>(count), weight = arbitrary_of<T>(shape.cols),
             vector = arbitrary_of<T>(shape.cols);
  const T* const bias = has_bias ? vector.data() : nullptr;
  const T* const norm_bias = centered ? vector.data() : nullptr;
  std::vector<T> sum = arbitrary_of<T>(count), expected_sum = sum, normed(sum.size()),
                 expected_normed(sum.size());
  std::vector<Wide<T>> stats(static_cast<size_t>(rows * shape.stats_per_row())),
      expected_stats(stats.size());
  sum_and_norm(shape, dropout, 1e-5, x.data(), bias, sum.data(), weight.data(), norm_bias,
               normed.data(), stats.data());
  if (dropout.is_on()) {
    add_residual_dropped(dropout, rows, shape.cols, x.data(), bias, expected_sum.data());
  } else {
    add_residual(rows, shape.cols, x.data(), bias, expected_sum.data());
  }
  norm_forward(shape, 1e-5, expected_sum.data(), weight.data(), norm_bias, expected_normed.data(),
               expected_stats.data());
  CHECK(sum == expected_sum);
  CHECK(normed == expected_normed);
  CHECK(stats == expected_stats);
}

}  // namespace

TEST_CASE("kernels: a sum and its norm are those of the two kernels, to the bit") {
  const Dropout off, on{.key = {3, 5}, .threshold = 20000, .sample_rows = 7, .rows_before = 2};
  for (const int64_t rows : {1, 8, 37}) {
    for (const bool centered : {false, true}) {
      for (const Dropout& dropout : {off, on}) {
        check_sum_and_norm<float>(rows, centered, centered, dropout);
        check_sum_and_norm<double>(rows, centered, centered, dropout);
        check_sum_and_norm<c10::BFloat16>(rows, centered, !centered, dropout);
        check_sum_and_norm<c10::Half>(rows, centered, centered, dropout);
      }
    }
  }
}

TEST_CASE("kernels: limits of experts' activations let no NaN pass for a number") {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    const program::ActivationAttributes activation{ActivationKind::kGeluSigmoid, true, 7, 1};
    for (int64_t at = 0; at < 17; ++at) {
      std::vector<T> gate(17, T(0.5)), up(17, T(9)), y(17);
      up[static_cast<size_t>(at)] = nan;
      expert_row_forward(activation, 17, T(1), gate.data(), up.data(), y.data());
      for (int64_t c = 0; c < 17; ++c) {
        CHECK(std::isnan(y[static_cast<size_t>(c)]) == (c == at));
      }
      std::vector<T> dy(17, T(1));
      const T d_weight =
          expert_row_backward(activation, 17, T(1), gate.data(), up.data(), dy.data());
      CHECK(std::isnan(d_weight));
      CHECK(std::isnan(gate[static_cast<size_t>(at)]));
    }
  };
  check(0.0F);
  check(0.0);
}
