#pragma once

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpu/gpu.h"
#include "host_collectives.h"
#include "host_runner.h"
#include "late_memory.h"

// A GPU of host threads, whose tensors are the CPU's: the engine takes every way that it takes with
// a real one but those into CUDA itself.
namespace smp::test {

// The threads do at once what they are asked for.
class HostMarks final : public gpu::GpuMarks {
 public:
  void align() override { is_aligned_ = true; }
  void set(size_t mark) override {
    if (!is_aligned_ || mark != marks_.size()) throw std::logic_error("marks out of order");
    marks_.push_back(runinfo::steady_ns());
  }
  int64_t ns_of(size_t mark) override {
    const int64_t ns = marks_.at(mark);
    if (mark + 1 == marks_.size()) marks_.clear();
    return ns;
  }

 private:
  bool is_aligned_ = false;
  std::vector<int64_t> marks_;
};

class HostGpu final : public gpu::Gpu {
 public:
  HostGpu(const kernels::DeviceFunctions& functions, CountedCopies& counts, HostGpuNetwork& network)
      : functions_(functions), counts_(counts), memory_(counts), collectives_(network) {}

  c10::Device device() const override { return c10::DeviceType::CPU; }
  std::string name() const override { return "host threads"; }
  const kernels::DeviceFunctions& functions() const override { return functions_; }
  device::DeviceMemory& memory() override { return memory_; }
  gpu::DeviceCollectivesLibrary& collectives() override { return collectives_; }
  gpu::GpuMarks& marks() override { return marks_; }
  void listen(gpu::AllocationListener* /*listener*/) override {}
  int64_t cache_flushes() const override { return counts_.cache_flushes; }

 private:
  const kernels::DeviceFunctions& functions_;
  const CountedCopies& counts_;
  LateMemory memory_;
  HostCollectivesLibrary collectives_;
  HostMarks marks_;
};

// CPU tensors are computed with as a GPU's, and plans for GPUs run; while it lives.
class HostGpus {
 public:
  explicit HostGpus(bool flash = false) : functions_(HostRunner(2, 1, flash)), scope_(functions_) {}

  gpu::GpuLoader open() {
    return [this](const gpu::GpuRequest& /*request*/) {
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
