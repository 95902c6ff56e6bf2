#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "anywhere.h"
#include "smp/plan/dtype.h"

namespace smp {

// States of an element that an optimizer may keep, at most.
inline constexpr size_t kMostStates = 2;

// A range that is updated alike. T: of weights and state, float or double.
template <typename T>
struct UpdateRange {
  int64_t count = 0;
  bool decays = false;  // weight decay applies
  const T* gradients = nullptr;
  T* weights = nullptr;
  std::array<T*, kMostStates> states{};  // as many as the rule names
  // Where layers compute in 16 bits, `weights` are fp32 master weights and the new ones are written
  // here too, rounded to copy_dtype.
  uint16_t* copy = nullptr;
  DType copy_dtype = DType::kBF16;
  // Memory of the device. Nothing is updated where it holds infinity or no number by then; null:
  // always updated.
  const double* only_if_finite = nullptr;

  SMP_ANYWHERE bool is_held_back() const {
    return only_if_finite != nullptr && !(*only_if_finite - *only_if_finite == 0);
  }
};

}  // namespace smp
