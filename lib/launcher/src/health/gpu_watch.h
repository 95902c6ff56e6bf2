#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "health/nvml.h"
#include "smp/plan/system/host_usage.h"

namespace smp::health {

struct GpuSample {
  system::GpuUsage usage;  // its ranks are empty: who is which rank is known elsewhere
  std::vector<GpuProcess> processes;
};

// The NVIDIA GPUs of this host, by way of NVML (libnvidia-ml.so.1), which is loaded if it is there.
// A driver in trouble can hold a call for seconds, so a thread of its own asks, and others take
// what it had last. Without the library, or a GPU, there is no thread, and no sample. Any thread.
class GpuWatch {
 public:
  explicit GpuWatch(std::chrono::milliseconds every);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  std::vector<GpuSample> latest() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive us; none: no GPUs
};

}  // namespace smp::health
