#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "smp/plan/base/dtype.h"

namespace smp::kernels {

// States of an element that an optimizer may keep, at most.
inline constexpr size_t kMostStates = 2;

// A range of elements with equal update factors. T is the type of weights and state, float or
// double.
template <typename T>
struct UpdateRange {
  int64_t count = 0;
  bool decays = false;  // weight decay applies
  const T* gradients = nullptr;
  T* weights = nullptr;
  std::array<T*, kMostStates> states{};  // as many as the rule names
  // With 16-bit layers `weights` are fp32 master weights, and the new weights are also written
  // here, rounded to copy_dtype.
  uint16_t* copy = nullptr;
  DType copy_dtype = DType::kBF16;
  // Device memory. The range is not updated if the value is not finite when the update runs; null:
  // always updated.
  const double* only_if_finite = nullptr;

  SMP_HOST_DEVICE bool is_held_back() const {
    return only_if_finite != nullptr && !(*only_if_finite - *only_if_finite == 0);
  }
};

}  // namespace smp::kernels
