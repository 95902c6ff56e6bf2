#include "smp/runtime/parameters/weight_init.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <vector>

#include "smp/plan/base/philox.h"

using namespace smp;
using namespace smp::model;
using namespace smp::parameters;

namespace {

ParameterSpec normal_matrix(const char* name, int64_t rows, int64_t cols, double std) {
  ParameterSpec parameter;
  parameter.name = name;
  parameter.rows = rows;
  parameter.cols = cols;
  parameter.init_std = std;
  return parameter;
}

template <typename T>
std::vector<T> drawn(const ParameterSpec& parameter, const Box& box, uint64_t seed = 1234) {
  std::vector<T> values(static_cast<size_t>(box.size()));
  fill_parameter(parameter, box, seed, values.data());
  return values;
}

}  // namespace

TEST_CASE("Philox gives Random123's known answers") {  // its kat_vectors, philox4x32 10
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("streams differ by seed and by name") {
  CHECK(stream_key(1, "a") == stream_key(1, "a"));
  CHECK(stream_key(1, "a") != stream_key(2, "a"));
  CHECK(stream_key(1, "a") != stream_key(1, "b"));
  CHECK(stream_key(1, "") != stream_key(uint64_t{1} << 32, ""));
}

TEST_CASE("a box of a parameter holds what the whole holds there") {
  const ParameterSpec parameter = normal_matrix("layers.0.mlp.up.weight", 13, 7, 0.02);
  const std::vector<double> whole = drawn<double>(parameter, {0, 13, 0, 7});
  for (const Box& box : {Box{0, 13, 0, 7}, Box{5, 9, 0, 7}, Box{0, 13, 3, 6}, Box{12, 13, 6, 7},
                         Box{2, 2, 0, 7}, Box{1, 11, 1, 2}}) {
    const std::vector<double> part = drawn<double>(parameter, box);
    std::vector<double> expected;
    for (int64_t row = box.row_begin; row < box.row_end; ++row) {
      for (int64_t col = box.col_begin; col < box.col_end; ++col) {
        expected.push_back(whole[static_cast<size_t>(row * 7 + col)]);
      }
    }
    CHECK(part == expected);
  }
}

TEST_CASE("fp32 weights are fp64 weights rounded once") {
  const ParameterSpec parameter = normal_matrix("head.weight", 50, 11, 0.02);
  const std::vector<double> exact = drawn<double>(parameter, {0, 50, 0, 11});
  const std::vector<float> rounded = drawn<float>(parameter, {0, 50, 0, 11});
  for (size_t i = 0; i < exact.size(); ++i) CHECK(rounded[i] == static_cast<float>(exact[i]));
}

TEST_CASE("normal weights have the mean, deviation and tails of a normal") {
  const int64_t rows = 1000;
  const int64_t cols = 1000;
  const ParameterSpec parameter = normal_matrix("embedding.tokens.weight", rows, cols, 0.5);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<float> values = drawn<float>(parameter, {0, rows, 0, cols});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  int64_t beyond_two = 0;
  for (const float value : values) {
    const double x = value / 0.5;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  const auto count = static_cast<double>(values.size());
  CHECK(std::abs(sum / count) < 4e-3);          // 4 standard errors
  CHECK(std::abs(squares / count - 1) < 6e-3);  // sqrt(2 / n) = 1.4e-3
  CHECK(std::abs(fourth / count - 3) < 4e-2);   // sqrt(96 / n) = 9.8e-3
  CHECK(std::abs(static_cast<double>(beyond_two) / count - 0.0455) < 1e-3);
  MESSAGE("million normal weights per second: " << 1.0 / took.count());
}

TEST_CASE("norms start at one and biases at zero") {
  ParameterSpec parameter;
  parameter.rows = 5;
  parameter.is_vector = true;
  parameter.init = Init::kOnes;
  CHECK(drawn<float>(parameter, {1, 4, 0, 1}) == std::vector<float>{1, 1, 1});
  parameter.init = Init::kZeros;
  CHECK(drawn<double>(parameter, {0, 2, 0, 1}) == std::vector<double>{0, 0});
}
