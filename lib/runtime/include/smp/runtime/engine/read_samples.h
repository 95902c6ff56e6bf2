#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "smp/plan/model/layers.h"

namespace smp::engine {

// Destination buffers of samples, by field of the batch, in the shape and type of field_of().
// null = the field is not read.
class SampleBuffers {
 public:
  void*& at(model::BatchField field) { return buffers_[static_cast<size_t>(field)]; }
  void* get(model::BatchField field) const { return buffers_[static_cast<size_t>(field)]; }
  int64_t* integers(model::BatchField field) const { return static_cast<int64_t*>(get(field)); }

 private:
  std::array<void*, model::kBatchFields> buffers_{};
};

// Reads samples [first_sample, first_sample + count) of a step's global batch into `out`. Steps
// count from 0.
using ReadSamples = std::function<void(int64_t step, int64_t first_sample, int64_t count,
                                       const SampleBuffers& out)>;

}  // namespace smp::engine
