#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "smp/plan/base/philox.h"

namespace smp::kernels {

// The elements of one row. All counts are those of the whole model and the global batch.
struct DropoutRow {
  PhiloxKey key{};         // of seed, step, layer and site
  uint32_t threshold = 0;  // an element is dropped if its 16 random bits are below; 0 = no dropout
  uint32_t row = 0;        // of the sample: a token, a query
  uint32_t head = 0;
  uint32_t sample = 0;

  // The factor of kept elements: 1 / the share that is kept.
  SMP_HOST_DEVICE double factor() const { return 65536.0 / (65536.0 - threshold); }
};

}  // namespace smp::kernels
