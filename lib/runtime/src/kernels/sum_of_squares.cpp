#include "kernels/sum_of_squares.h"

#include "kernels/vector_clones.h"

namespace smp::kernels {
namespace {

// kLanes independent sums, so that the additions need not wait for each other.
template <typename T>
[[gnu::always_inline]] inline double squares(int64_t count, const T* __restrict values) {
  constexpr int64_t kLanes = 32;
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (int64_t i = whole; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    sum += value * value;
  }
  return sum;
}

}  // namespace

SMP_VECTOR_CLONES
double sum_of_squares(int64_t count, const float* values) { return squares(count, values); }

SMP_VECTOR_CLONES
double sum_of_squares(int64_t count, const double* values) { return squares(count, values); }

}  // namespace smp::kernels
