#pragma once

#include <chrono>
#include <string>

#include "smp/launcher/health/host_health.h"

namespace smp::health {

// By NVML, where it is, and by the kernel's log, where it may be read. `root` as of own_health().
// NVML may hang on a GPU that has failed: then its silence is an error, after `patience`.
GpuHealth own_gpu_health(const std::string& root, std::chrono::milliseconds patience);

}  // namespace smp::health
