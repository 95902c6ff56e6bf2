#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <vector>

// Kernels compute with fp32 where elements are bf16 or fp16; statistics and the gradients of
// weights stay in it. Each result is rounded once, to nearest even.
namespace smp::kernels {

template <typename T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<c10::BFloat16> {
  using Type = float;
};
template <>
struct WideOf<c10::Half> {
  using Type = float;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T>
inline constexpr bool kIsNarrow = sizeof(T) == 2;

void widen(int64_t count, const c10::BFloat16* from, float* to);
void widen(int64_t count, const c10::Half* from, float* to);
void narrow(int64_t count, const float* from, c10::BFloat16* to);
void narrow(int64_t count, const float* from, c10::Half* to);

// A small parameter as kernels want it: a view where it is wide already, else a widened copy. Null
// stays null.
template <typename T>
class WideVector {
 public:
  WideVector(int64_t count, const T* values) : values_(values) {
    if constexpr (kIsNarrow<T>) {
      if (values == nullptr) return;
      copy_.resize(static_cast<size_t>(count));
      widen(count, values, copy_.data());
    }
  }

  const Wide<T>* data() const {
    if constexpr (kIsNarrow<T>) {
      return values_ == nullptr ? nullptr : copy_.data();
    } else {
      return values_;
    }
  }

 private:
  const T* values_;
  std::vector<Wide<T>> copy_;
};

}  // namespace smp::kernels
