#pragma once

#include <cmath>
#include <cstdint>

#include "smp/plan/data/data_files.h"

namespace smp::kernels {

// Of the rows' sums of exponentials and, behind them, their targets' logits. Rows of kNoTarget add
// nothing, and are divided by as all others: the step's end puts right what the mean is over.
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
