#include "adamw_kernel.h"

#include <cmath>

// Each kernel is compiled three times; the loader picks the widest that the CPU has. The file is
// compiled without contraction to fused multiply-adds, so all three round alike.
#define SMP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))

namespace smp {
namespace {

template <typename T>
[[gnu::always_inline]] inline void update(const AdamWFactors& factors, int64_t count,
                                          const T* __restrict gradient, T* __restrict weight,
                                          T* __restrict momentum, T* __restrict variance) {
  const auto scale = static_cast<T>(factors.scale);
  const auto one_less_beta1 = static_cast<T>(1.0 - factors.beta1);
  const auto beta2 = static_cast<T>(factors.beta2);
  const auto one_less_beta2 = static_cast<T>(1.0 - factors.beta2);
  const auto epsilon = static_cast<T>(factors.epsilon);
  const auto keep = static_cast<T>(factors.keep);
  const auto rate = static_cast<T>(factors.rate);
  const auto inverse_root = static_cast<T>(factors.inverse_root);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale;
    const T m = momentum[i] + one_less_beta1 * (g - momentum[i]);
    const T v = beta2 * variance[i] + one_less_beta2 * g * g;
    momentum[i] = m;
    variance[i] = v;
    weight[i] = keep * weight[i] - rate * (m / (std::sqrt(v) * inverse_root + epsilon));
  }
}

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
void adamw_update(const AdamWFactors& factors, int64_t count, const float* gradient, float* weight,
                  float* momentum, float* variance) {
  update(factors, count, gradient, weight, momentum, variance);
}

SMP_VECTOR_CLONES
void adamw_update(const AdamWFactors& factors, int64_t count, const double* gradient,
                  double* weight, double* momentum, double* variance) {
  update(factors, count, gradient, weight, momentum, variance);
}

SMP_VECTOR_CLONES
double sum_of_squares(int64_t count, const float* values) { return squares(count, values); }

SMP_VECTOR_CLONES
double sum_of_squares(int64_t count, const double* values) { return squares(count, values); }

}  // namespace smp
