#pragma once

#include <memory>
#include <utility>

#include "gpu.h"
#include "host_collectives.h"
#include "host_runner.h"
#include "late_memory.h"

// A GPU of host threads, whose tensors are the CPU's: the engine takes every way that it takes with
// a real one but those into CUDA itself.
namespace smp::test {

class HostGpu final : public Gpu {
 public:
  HostGpu(const DeviceFunctions& functions, CountedCopies& counts, HostGpuNetwork& network)
      : functions_(functions), counts_(counts), memory_(counts), collectives_(network) {}

  c10::Device device() const override { return c10::DeviceType::CPU; }
  std::string name() const override { return "host threads"; }
  const DeviceFunctions& functions() const override { return functions_; }
  DeviceMemory& memory() override { return memory_; }
  DeviceCollectivesLibrary& collectives() override { return collectives_; }
  void listen(AllocationListener* /*listener*/) override {}
  int64_t cache_flushes() const override { return counts_.cache_flushes; }

 private:
  const DeviceFunctions& functions_;
  const CountedCopies& counts_;
  LateMemory memory_;
  HostCollectivesLibrary collectives_;
};

// CPU tensors are computed with as a GPU's, and plans for GPUs run; while it lives.
class HostGpus {
 public:
  explicit HostGpus(bool flash = false) : functions_(HostRunner(2, 1, flash)), scope_(functions_) {}

  OpenGpu open() {
    return [this](const GpuRequest& /*request*/) {
      return std::make_shared<HostGpu>(functions_, counts_, network_);
    };
  }
  CountedCopies& counts() { return counts_; }
  HostGpuNetwork& network() { return network_; }

 private:
  CountedCopies counts_;
  HostGpuNetwork network_;
  HostFunctions functions_;
  FunctionsScope scope_;
};

}  // namespace smp::test
