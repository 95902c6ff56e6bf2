#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/gpu.h"

namespace smp::cuda {

// Marks are CUDA events with times. CUDA measures the time between two events, to about half a
// microsecond. align() records an origin event and brackets it by two readings of the host's clock;
// the time of a mark is the origin's time plus the measured distance.
class DeviceMarks final : public gpu::GpuMarks {
 public:
  DeviceMarks() = default;
  ~DeviceMarks() override;
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  void align() override;
  void set(size_t mark) override;
  int64_t ns_of(size_t mark) override;

 private:
  cudaEvent_t origin_ = nullptr;
  int64_t origin_ns_ = 0;           // in the host's steady clock
  std::vector<cudaEvent_t> marks_;  // created at their first use
};

}  // namespace smp::cuda
