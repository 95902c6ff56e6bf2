#pragma once

#include <cmath>
#include <cstdint>

namespace smp {

// Of the rows' sums of exponentials and, behind them, their targets' logits.
template <typename T>
double mean_loss(int64_t rows, const T* sums) {
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    total += std::log(static_cast<double>(sums[r])) - static_cast<double>(sums[rows + r]);
  }
  return total / static_cast<double>(rows);
}

}  // namespace smp
