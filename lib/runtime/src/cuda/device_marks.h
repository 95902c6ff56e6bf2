#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/gpu.h"

namespace smp::cuda {

// Marks are events with times. CUDA says how far two of them lie apart, to about half a
// microsecond, so all times are those of a first event, which the host's clock has seen from both
// sides.
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
  int64_t origin_ns_ = 0;           // by the host's steady clock
  std::vector<cudaEvent_t> marks_;  // made when they are needed first
};

}  // namespace smp::cuda
