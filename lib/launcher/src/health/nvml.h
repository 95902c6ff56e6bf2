#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace smp::health {

// The part of NVML that is used here, as its reference manual declares it; the names that end in a
// version are how it keeps old programs running.
struct Nvml {
  static constexpr int kSuccess = 0;
  using Device = void*;
  struct Utilization {
    unsigned gpu, memory;  // percent of the time since the last sample of the driver
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  struct ProcessInfo {
    unsigned pid;
    unsigned long long memory;  // all ones: the driver does not say
    unsigned instance, compute_instance;
  };

  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // mW
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  // Memory errors: 1 = uncorrectable ones; 0 = since the driver was loaded.
  int (*ecc_errors)(Device, int type, int counter, unsigned long long*) = nullptr;

  // Loads libnvidia-ml.so.1, which then stays. False if it, or a function, is missing.
  bool load();
};

// A process that holds memory of a GPU.
struct GpuProcess {
  pid_t pid = 0;
  int64_t memory_bytes = 0;
};

std::vector<GpuProcess> processes_on(const Nvml& nvml, Nvml::Device device);

}  // namespace smp::health
