#pragma once

#include <cstdint>

namespace smp::kernels {

// In double, in an order that depends on count alone; vectorised for the machine it runs on. Pure.
double sum_of_squares(int64_t count, const float* values);
double sum_of_squares(int64_t count, const double* values);

}  // namespace smp::kernels
