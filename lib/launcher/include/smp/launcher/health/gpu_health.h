#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace smp::health {

struct GpuNote {
  int gpu = -1;  // as nvidia-smi numbers it; -1: not known which
  std::string text;
};

// What may spoil a job on the NVIDIA GPUs of a host.
struct GpuHealth {
  std::vector<GpuNote> errors;   // "2 uncorrectable memory errors since the driver was loaded"
  std::vector<GpuNote> logged;   // "Xid (PCI:0000:3b:00): 79, ..., 5 h ago": it may be over
  std::vector<GpuNote> held_by;  // "process 123 (python3) of ann, 55 GiB"
};

// By NVML, where it is, and by the kernel's log, where it may be read. `root` as of own_health().
// NVML may hang on a GPU that has failed: then its silence is an error, after `patience`.
GpuHealth own_gpu_health(const std::string& root, std::chrono::milliseconds patience);

}  // namespace smp::health
