#include <algorithm>
#include <limits>

#include "kernels/kernels.h"
#include "kernels/vector_math.h"
#include "smp/plan/data/data_files.h"

namespace smp::kernels {
namespace {

template <typename T>
SMP_INLINE void maxima_loop(int64_t rows, int64_t cols, const T* logits, T* maxima) {
  for (int64_t r = 0; r < rows; ++r, logits += cols) {
    T highest = std::numeric_limits<T>::lowest();
#pragma omp simd reduction(max : highest)
    for (int64_t c = 0; c < cols; ++c) highest = logits[c] > highest ? logits[c] : highest;
    maxima[r] = highest;
  }
}

template <typename T>
SMP_INLINE void exponentials_loop(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                                  const T* maxima, T* logits, T* sums, T* target_logits) {
  for (int64_t r = 0; r < rows; ++r, logits += cols) {
    const T highest = maxima[r];
    const int64_t column = targets[r] - begin;
    target_logits[r] = column >= 0 && column < cols ? logits[column] - highest : T(0);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) {
      const T e = vector_exp(logits[c] - highest);
      logits[c] = e;
      sum += e;
    }
    sums[r] = sum;
  }
}

template <typename T>
SMP_INLINE void gradient_loop(int64_t rows, int64_t cols, int64_t begin, const int64_t* targets,
                              const T* sums, T scale, T* exponentials) {
  for (int64_t r = 0; r < rows; ++r, exponentials += cols) {
    if (targets[r] == data::kNoTarget) {
      std::fill_n(exponentials, cols, T(0));
      continue;
    }
    const T factor = scale / sums[r];
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) exponentials[c] *= factor;
    const int64_t column = targets[r] - begin;
    if (column >= 0 && column < cols) exponentials[column] -= scale;
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                              \
  SMP_VECTOR_CLONES void row_maxima(int64_t rows, int64_t cols, const T* logits, T* maxima) {      \
    maxima_loop(rows, cols, logits, maxima);                                                       \
  }                                                                                                \
  SMP_VECTOR_CLONES void exponentials(int64_t rows, int64_t cols, int64_t begin,                   \
                                      const int64_t* targets, const T* maxima, T* logits, T* sums, \
                                      T* target_logits) {                                          \
    exponentials_loop(rows, cols, begin, targets, maxima, logits, sums, target_logits);            \
  }                                                                                                \
  SMP_VECTOR_CLONES void softmax_gradient(int64_t rows, int64_t cols, int64_t begin,               \
                                          const int64_t* targets, const T* sums, T scale,          \
                                          T* exponentials) {                                       \
    gradient_loop(rows, cols, begin, targets, sums, scale, exponentials);                          \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
