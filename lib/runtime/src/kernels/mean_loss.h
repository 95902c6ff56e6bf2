#pragma once

#include <cmath>
#include <cstdint>

#include "smp/plan/data/data_files.h"

namespace smp::kernels {

// The mean loss of the rows, from their sums of exponentials and, behind these, their targets'
// logits. Rows of kNoTarget add nothing, but the mean divides by all rows: the end of the step
// corrects the divisor.
template <typename T>
double mean_loss(int64_t rows, const T* sums, const int64_t* targets) {
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] == data::kNoTarget) continue;
    total += std::log(static_cast<double>(sums[r])) - static_cast<double>(sums[rows + r]);
  }
  return total / static_cast<double>(rows);
}

}  // namespace smp::kernels
