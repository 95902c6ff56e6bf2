#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "gpu.h"
#include "host_runner.h"

// A GPU of host threads, whose tensors are the CPU's: the engine takes every way that it takes with
// a real one but those into CUDA itself.
namespace smp::test {

struct CountedCopies {
  std::atomic<int64_t> to_host{0}, to_device{0}, pinned{0};
  std::atomic<int64_t> cache_flushes{0};  // what the GPUs say of theirs
};

// All memory is the device's. What is copied to the host is read as late as can be: only when it
// has been asked for a few times, or is waited for; so what changes a buffer too early is seen.
class LateMemory final : public DeviceMemory {
 public:
  explicit LateMemory(CountedCopies& counts) : counts_(counts) {}

  bool holds(const void* /*data*/) const override { return true; }
  void pin(void* /*memory*/, int64_t /*bytes*/) override { ++counts_.pinned; }
  void unpin(void* /*memory*/) override { --counts_.pinned; }
  CopyPtr start_to_host(void* to, const void* from, int64_t bytes) override {
    ++counts_.to_host;
    return std::make_unique<LateCopy>(to, from, bytes, 3);
  }
  CopyPtr start_to_device(void* to, const void* from, int64_t bytes) override {
    ++counts_.to_device;
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return std::make_unique<LateCopy>(nullptr, nullptr, 0, 1);
  }

 private:
  class LateCopy final : public Copy {
   public:
    LateCopy(void* to, const void* from, int64_t bytes, int asked)
        : to_(to), from_(from), bytes_(bytes), left_(asked) {}
    bool done() override {
      if (left_ > 0 && --left_ == 0) copy();
      return left_ == 0;
    }
    void wait() override {
      if (std::exchange(left_, 0) > 0) copy();
    }

   private:
    void copy() {
      if (bytes_ > 0) std::memcpy(to_, from_, static_cast<size_t>(bytes_));
    }
    void* to_;
    const void* from_;
    int64_t bytes_;
    int left_;
  };

  CountedCopies& counts_;
};

class HostGpu final : public Gpu {
 public:
  HostGpu(const DeviceFunctions& functions, CountedCopies& counts)
      : functions_(functions), counts_(counts), memory_(counts) {}

  c10::Device device() const override { return c10::DeviceType::CPU; }
  std::string name() const override { return "host threads"; }
  const DeviceFunctions& functions() const override { return functions_; }
  DeviceMemory& memory() override { return memory_; }
  void listen(AllocationListener* /*listener*/) override {}
  int64_t cache_flushes() const override { return counts_.cache_flushes; }

 private:
  const DeviceFunctions& functions_;
  const CountedCopies& counts_;
  LateMemory memory_;
};

// CPU tensors are computed with as a GPU's, and plans for GPUs run; while it lives.
class HostGpus {
 public:
  explicit HostGpus(bool flash = false) : functions_(HostRunner(2, 1, flash)), scope_(functions_) {}

  OpenGpu open() {
    return [this](const GpuRequest& /*request*/) {
      return std::make_shared<HostGpu>(functions_, counts_);
    };
  }
  CountedCopies& counts() { return counts_; }

 private:
  CountedCopies counts_;
  HostFunctions functions_;
  FunctionsScope scope_;
};

}  // namespace smp::test
