#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace smp::importers {

// The product of positive numbers from a file; the largest int64_t if the product is larger.
inline int64_t product_of(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return product;
}

}  // namespace smp::importers
