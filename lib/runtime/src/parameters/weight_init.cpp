#include "smp/runtime/parameters/weight_init.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "smp/plan/base/check.h"
#include "smp/plan/base/philox.h"

namespace smp::parameters {
namespace {

// Four independent standard normals from one block (Box and Muller 1958): a radius from u in (0, 1]
// and an angle from v in [0, 1), each with 32 bits.
std::array<double, 4> four_normals(const PhiloxBlock& block) {
  constexpr double kUnit = 1.0 / 4294967296.0;
  std::array<double, 4> normals{};
  for (size_t pair = 0; pair < 2; ++pair) {
    const double u = (static_cast<double>(block[2 * pair]) + 1.0) * kUnit;
    const double angle = 2.0 * std::numbers::pi * kUnit * static_cast<double>(block[2 * pair + 1]);
    const double radius = std::sqrt(-2.0 * std::log(u));
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

// Elements [begin, end) of the stream, scaled.
template <typename T>
void fill_normal(const PhiloxKey& key, double std, int64_t begin, int64_t end, T* out) {
  for (int64_t element = begin; element < end;) {
    const int64_t block = element / 4;
    const std::array<double, 4> normals = four_normals(philox_rounds(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key));
    const int64_t stop = std::min(end, 4 * (block + 1));
    for (; element < stop; ++element) {
      *out++ = static_cast<T>(std * normals[static_cast<size_t>(element % 4)]);
    }
  }
}

template <typename T>
void fill(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
          int64_t begin, int64_t end, T* out) {
  SMP_CHECK(box.row_begin >= 0 && box.row_end <= parameter.rows);
  SMP_CHECK(box.col_begin >= 0 && box.col_end <= parameter.cols);
  SMP_CHECK(begin >= 0 && end <= box.size());
  switch (parameter.init) {
    case model::Init::kZeros: std::fill_n(out, end - begin, T{0}); return;
    case model::Init::kOnes: std::fill_n(out, end - begin, T{1}); return;
    case model::Init::kNormal: break;
  }
  const PhiloxKey key = stream_key(seed, parameter.name);
  for (int64_t element = begin; element < end;) {
    const int64_t row = element / box.cols(), col = element % box.cols();
    const int64_t count = std::min(box.cols() - col, end - element);
    const int64_t first = (box.row_begin + row) * parameter.cols + box.col_begin + col;
    fill_normal(key, parameter.init_std, first, first + count, out);
    out += count;
    element += count;
  }
}

}  // namespace

void fill_parameter(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
                    int64_t begin, int64_t end, float* out) {
  fill(parameter, box, seed, begin, end, out);
}

void fill_parameter(const model::ParameterSpec& parameter, const model::Box& box, uint64_t seed,
                    int64_t begin, int64_t end, double* out) {
  fill(parameter, box, seed, begin, end, out);
}

}  // namespace smp::parameters
